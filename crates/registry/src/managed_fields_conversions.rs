//! Conversions by webhook for managedFields entries of other versions than the one that is written.
//!
//! Merging is synchronous and cannot call a webhook. A missing conversion is recorded, the result
//! of the merge is discarded, the webhook converts everything that was missing, and the merge runs
//! again.

use meta::{ApiError, Str, Value};
use parking_lot::Mutex;
use patch::apply::VersionConverter;
use schema::TypeId;

use crate::RemoteConverter;

/// The conversions of one request.
#[derive(Debug, Default)]
pub(crate) struct ManagedFieldsConversions {
    known: Mutex<Vec<Conversion>>,
    missing: Mutex<Vec<(Value, Str)>>,
}

#[derive(Clone, Debug)]
struct Conversion {
    from: Value,
    to: Str,
    object: Value,
}

/// A request needs few versions, but each step of a merge needs the results of the previous one.
const CONVERSIONS_MAX: usize = 64;

impl ManagedFieldsConversions {
    /// Converts everything that was missing. Answers whether there was anything.
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

/// The versions of a kind, as far as the webhook has converted them.
pub(crate) struct ConvertedVersions<'a> {
    pub(crate) versions: &'a dyn VersionConverter,
    pub(crate) conversions: &'a ManagedFieldsConversions,
}

impl VersionConverter for ConvertedVersions<'_> {
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, TypeId)> {
        let ty = self.versions.type_of(api_version)?;
        if object.str_at(&["apiVersion"]) == api_version {
            return Some((object.clone(), ty));
        }
        if let Some(known) = self.conversions.find(object, api_version) {
            return Some((known, ty));
        }
        self.conversions.missing.lock().push((object.clone(), Str::new(api_version)));
        self.versions.convert(object, api_version)
    }

    fn type_of(&self, api_version: &str) -> Option<TypeId> {
        self.versions.type_of(api_version)
    }
}
