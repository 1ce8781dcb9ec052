//! The values of Kubernetes' own libraries.

use std::net::IpAddr;
use std::sync::Arc;

use meta::{authorization::Verdict, quantity::Quantity};

use crate::library::{AuthorizerBinding, Check, Format, Prefix, Url, Version};
use crate::types::Type;

#[derive(Debug)]
pub enum KubernetesValue {
    Quantity(Quantity),
    Url(Url),
    Ip(IpAddr),
    Cidr(Prefix),
    Semver(Version),
    Format(&'static Format),
    Authorizer(AuthorizerBinding),
    Check(Check),
    Decision(Arc<Verdict>),
}

impl KubernetesValue {
    pub(crate) fn type_of(&self) -> Type {
        match self {
            Self::Quantity(_) => Type::object("kubernetes.Quantity"),
            Self::Url(_) => Type::object("kubernetes.URL"),
            Self::Ip(_) => Type::Opaque("net.IP"),
            Self::Cidr(_) => Type::Opaque("net.CIDR"),
            Self::Semver(_) => Type::object("kubernetes.Semver"),
            Self::Format(_) => Type::object("kubernetes.NamedFormat"),
            Self::Authorizer(_) => Type::authorizer(),
            Self::Check(check) => check.type_of(),
            Self::Decision(_) => Type::object("kubernetes.authorization.Decision"),
        }
    }

    /// None if they are of different kinds, or have no equality.
    pub(crate) fn equals(&self, other: &Self) -> Option<bool> {
        Some(match (self, other) {
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a.text() == b.text(),
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a), Self::Cidr(b)) => a == b,
            (Self::Semver(a), Self::Semver(b)) => a.compare(b).is_eq(),
            (Self::Format(a), Self::Format(b)) => a.name == b.name,
            (Self::Authorizer(a), Self::Authorizer(b)) => {
                Arc::ptr_eq(&a.checks, &b.checks) && a.user == b.user
            }
            (Self::Check(a), Self::Check(b)) => a.same(b),
            (Self::Decision(a), Self::Decision(b)) => a == b,
            _ => return None,
        })
    }

    /// Addresses have a length, in bytes.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Self::Ip(IpAddr::V4(_)) => Some(4),
            Self::Ip(IpAddr::V6(_)) => Some(16),
            Self::Cidr(prefix) => Some(u64::from(prefix.bits).div_ceil(8)),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Self::Quantity(quantity) => quantity.to_string(),
            Self::Url(url) => url.text(),
            Self::Ip(ip) => ip.to_string(),
            Self::Cidr(prefix) => prefix.text(),
            Self::Semver(version) => version.text(),
            Self::Format(format) => format.name.to_owned(),
            Self::Authorizer(_) | Self::Check(_) | Self::Decision(_) => {
                self.type_of().name().to_owned()
            }
        }
    }
}

impl std::fmt::Display for KubernetesValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text())
    }
}
