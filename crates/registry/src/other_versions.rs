//! Objects in versions that only a webhook can make of them, for owners that were noted in another
//! version than the one that is written to.
//!
//! Merging and tracking are plain computations that can't wait. They ask here; what is not known yet
//! is noted, the computation runs to an end that nobody looks at, the webhook is asked for all that
//! was missing, and the computation runs again.

use meta::{ApiError, Str, Value};
use parking_lot::Mutex;
use patch::apply::VersionConverter;
use schema::TypeId;

use crate::RemoteConverter;

/// What one request has had converted.
#[derive(Debug, Default)]
pub(crate) struct OtherVersions {
    known: Mutex<Vec<Conversion>>,
    missing: Mutex<Vec<(Value, Str)>>,
}

#[derive(Clone, Debug)]
struct Conversion {
    from: Value,
    to: Str,
    object: Value,
}

/// Versions that are asked for are few; each step of a merge needs the results of the last.
const CONVERSIONS_MAX: usize = 64;

impl OtherVersions {
    /// Has everything converted that was missing. Answers whether there was anything.
    pub(crate) async fn resolve(
        &self,
        remote: Option<&dyn RemoteConverter>,
    ) -> Result<bool, ApiError> {
        let missing = std::mem::take(&mut *self.missing.lock());
        let (Some(remote), false) = (remote, missing.is_empty()) else { return Ok(false) };
        if self.known.lock().len() + missing.len() > CONVERSIONS_MAX {
            return Err(ApiError::internal("too many conversions for one change"));
        }
        for (from, to) in missing {
            let converted = remote.convert(vec![from.clone()], &to).await?;
            let object = converted.into_iter().next();
            let object = object.ok_or_else(|| ApiError::internal("nothing was converted"))?;
            self.known.lock().push(Conversion { from, to, object });
        }
        Ok(true)
    }

    fn find(&self, object: &Value, api_version: &str) -> Option<Value> {
        let known = self.known.lock();
        let found = known.iter().find(|known| known.to == api_version && known.from == *object);
        found.map(|found| found.object.clone())
    }
}

/// The versions of a kind that a webhook converts, as far as it was asked.
pub(crate) struct Asked<'a> {
    pub(crate) versions: &'a dyn VersionConverter,
    pub(crate) others: &'a OtherVersions,
}

impl VersionConverter for Asked<'_> {
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, TypeId)> {
        let ty = self.versions.type_of(api_version)?;
        if object.str_at(&["apiVersion"]) == api_version {
            return Some((object.clone(), ty));
        }
        if let Some(known) = self.others.find(object, api_version) {
            return Some((known, ty));
        }
        self.others.missing.lock().push((object.clone(), Str::new(api_version)));
        self.versions.convert(object, api_version)
    }

    fn type_of(&self, api_version: &str) -> Option<TypeId> {
        self.versions.type_of(api_version)
    }
}
