//! What the aggregator reads from an APIService, and the condition that it writes.

use meta::{GroupVersion, Value, value};

/// An APIService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiService {
    pub name: String,
    pub group_version: GroupVersion,
    pub group_priority: i32,
    pub version_priority: i32,
    /// None: this server answers itself.
    pub service: Option<ServiceReference>,
    /// PEM; empty: the roots of the host.
    pub ca_bundle: Vec<u8>,
    pub insecure_skip_tls_verify: bool,
    /// Whether its condition `Available` is true.
    pub available: bool,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceReference {
    pub namespace: String,
    pub name: String,
    pub port: u16,
}

impl ApiService {
    pub fn read(object: &Value) -> Self {
        let spec = |field| object.str_at(&["spec", field]);
        let number = |field| {
            let number = object.i64_at(&["spec", field]).unwrap_or_default();
            i32::try_from(number).unwrap_or_default()
        };
        let service = object.at(&["spec", "service"]).filter(|service| !service.is_null());
        let service = service.map(|service| ServiceReference {
            namespace: service.str_at(&["namespace"]).to_owned(),
            name: service.str_at(&["name"]).to_owned(),
            // Validation has let no other pass.
            port: service.i64_at(&["port"]).and_then(|port| port.try_into().ok()).unwrap_or(443),
        });
        Self {
            name: object.str_at(&["metadata", "name"]).to_owned(),
            group_version: GroupVersion::new(spec("group"), spec("version")),
            group_priority: number("groupPriorityMinimum"),
            version_priority: number("versionPriority"),
            service,
            ca_bundle: codec::base64::decode(spec("caBundle")).unwrap_or_default(),
            insecure_skip_tls_verify: object.bool_at(&["spec", "insecureSkipTLSVerify"]),
            available: is_available(object),
        }
    }

    /// Where its discovery is.
    pub fn discovery_path(&self) -> String {
        let GroupVersion { group, version } = &self.group_version;
        if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        }
    }
}

impl std::fmt::Display for ServiceReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.name, self.port)
    }
}

/// Whether the condition `Available` is true.
pub(crate) fn is_available(object: &Value) -> bool {
    available(object).is_some_and(|condition| condition.str_at(&["status"]) == "True")
}

fn available(object: &Value) -> Option<&Value> {
    let mut conditions = object.items_at(&["status", "conditions"]).iter();
    conditions.find(|condition| condition.str_at(&["type"]) == AVAILABLE)
}

const AVAILABLE: &str = "Available";

/// The condition `Available`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Availability {
    /// `True`, `False` or `Unknown`.
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Availability {
    pub(crate) fn local() -> Self {
        let message = "Local APIServices are always available".to_owned();
        Self { status: "True", reason: "Local", message }
    }

    pub(crate) fn passed() -> Self {
        Self { status: "True", reason: "Passed", message: "all checks passed".to_owned() }
    }

    pub(crate) fn missing(reason: &'static str, message: String) -> Self {
        Self { status: "False", reason, message }
    }

    pub(crate) fn unknown(reason: &'static str, message: String) -> Self {
        Self { status: "Unknown", reason, message }
    }

    /// Sets the condition; the time of its last transition changes with its status only. False: it was so
    /// before.
    pub(crate) fn set_in(&self, object: &mut Value) -> bool {
        let before = available(object);
        let text = |field| before.map(|before| before.str_at(&[field])).unwrap_or_default();
        if (text("status"), text("reason"), text("message"))
            == (self.status, self.reason, self.message.as_str())
        {
            return false;
        }
        let since = match text("lastTransitionTime") {
            same if text("status") == self.status && !same.is_empty() => same.to_owned(),
            _ => meta::time::now(),
        };
        let condition = value!({
            "type": AVAILABLE,
            "status": (self.status),
            "lastTransitionTime": (since),
            "reason": (self.reason),
            "message": (self.message.as_str()),
        });
        let mut conditions = object.items_at(&["status", "conditions"]).to_vec();
        match conditions.iter_mut().find(|known| known.str_at(&["type"]) == AVAILABLE) {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
        object.set_at(&["status", "conditions"], conditions);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let mut object = Value::object();
        let away =
            |message: &str| Availability::missing("FailedDiscoveryCheck", message.to_owned());
        assert!(away("a").set_in(&mut object));
        let path = |object: &Value| object.items_at(&["status", "conditions"])[0].clone();
        let mut old = path(&object);
        old.set_at(&["lastTransitionTime"], "2020-01-01T00:00:00Z");
        object.set_at(&["status", "conditions"], vec![old]);
        assert!(!away("a").set_in(&mut object));
        assert!(away("b").set_in(&mut object));
        assert_eq!(path(&object).str_at(&["lastTransitionTime"]), "2020-01-01T00:00:00Z");
        assert_eq!(path(&object).str_at(&["message"]), "b");
        assert!(!is_available(&object));
        assert!(Availability::passed().set_in(&mut object));
        assert_ne!(path(&object).str_at(&["lastTransitionTime"]), "2020-01-01T00:00:00Z");
        assert!(is_available(&object));
        assert_eq!(object.items_at(&["status", "conditions"]).len(), 1);
    }

    #[test]
    fn an_api_service_is_read_with_its_defaults() {
        let object = value!({
            "metadata": {"name": "v1.g"},
            "spec": {
                "group": "g", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 5,
                "service": {"namespace": "n", "name": "s"}, "caBundle": "YQ==",
            },
        });
        let read = ApiService::read(&object);
        let service = read.service.clone().expect("a service");
        assert_eq!(service.to_string(), "n/s:443");
        assert_eq!((read.ca_bundle.as_slice(), read.available), (&b"a"[..], false));
        assert_eq!(read.discovery_path(), "/apis/g/v1");
    }
}
