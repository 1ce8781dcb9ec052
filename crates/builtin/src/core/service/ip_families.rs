//! Which address families a service has, worked out from what its owner said and what the cluster
//! can do.

use std::net::IpAddr;

use meta::{
    FieldErrors, Value,
    field::{FieldPath, path},
};

pub(crate) const IPV4: &str = "IPv4";
pub(crate) const IPV6: &str = "IPv6";
const NONE: &str = "None";
const SINGLE: &str = "SingleStack";
const PREFER_DUAL: &str = "PreferDualStack";
const REQUIRE_DUAL: &str = "RequireDualStack";

/// The fields of a service that have to do with its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addressing {
    pub(crate) kind: String,
    pub(crate) cluster_ip: String,
    pub(crate) cluster_ips: Vec<String>,
    pub(crate) families: Vec<String>,
    pub(crate) policy: Option<String>,
    selects: bool,
}

impl Addressing {
    pub(crate) fn of(service: &Value) -> Self {
        let texts = |field| -> Vec<String> {
            let items = service.items_at(&["spec", field]).iter();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let policy = service.at(&["spec", "ipFamilyPolicy"]).and_then(Value::as_str);
        let selector = service.at(&["spec", "selector"]).and_then(Value::as_object);
        Self {
            kind: service.str_at(&["spec", "type"]).to_owned(),
            cluster_ip: service.str_at(&["spec", "clusterIP"]).to_owned(),
            cluster_ips: texts("clusterIPs"),
            families: texts("ipFamilies"),
            policy: policy.map(str::to_owned),
            selects: selector.is_some_and(|selector| !selector.is_empty()),
        }
    }

    pub(crate) fn write(&self, service: &mut Value) {
        let spec = service.object_at_mut(&["spec"]);
        let lists = [("clusterIPs", &self.cluster_ips), ("ipFamilies", &self.families)];
        for (field, texts) in lists {
            if texts.is_empty() {
                spec.remove(field);
            } else {
                spec.insert(field, texts.clone());
            }
        }
        if self.cluster_ip.is_empty() {
            spec.remove("clusterIP");
        } else {
            spec.insert("clusterIP", self.cluster_ip.as_str());
        }
        if let Some(policy) = &self.policy {
            spec.insert("ipFamilyPolicy", policy.as_str());
        }
    }

    pub(crate) fn is_external_name(&self) -> bool {
        self.kind == "ExternalName"
    }

    pub(crate) fn is_headless(&self) -> bool {
        self.cluster_ips.first().is_some_and(|ip| ip == NONE)
    }

    fn is_single(&self) -> bool {
        self.policy.as_deref() == Some(SINGLE)
    }

    /// An old client knows `clusterIP` only; a resubmitted manifest has neither.
    pub(crate) fn normalize(&mut self, old: Option<&Self>) {
        let Some(old) = old else {
            if !self.cluster_ip.is_empty() && self.cluster_ips.is_empty() {
                self.cluster_ips = vec![self.cluster_ip.clone()];
            }
            return;
        };
        if !old.is_external_name() && !self.is_external_name() {
            if self.cluster_ip.is_empty() {
                self.cluster_ip.clone_from(&old.cluster_ip);
            }
            if self.cluster_ips.is_empty() {
                self.cluster_ips.clone_from(&old.cluster_ips);
            }
        }
        if !old.cluster_ips.is_empty()
            && self.cluster_ips.is_empty()
            && old.cluster_ip == self.cluster_ip
        {
            self.cluster_ips.clone_from(&old.cluster_ips);
        }
        if old.cluster_ip != self.cluster_ip && old.cluster_ips == self.cluster_ips {
            // Changed or cleared in the old field: the new one follows.
            self.cluster_ips =
                Some(self.cluster_ip.clone()).filter(|ip| !ip.is_empty()).into_iter().collect();
        }
    }

    /// Whether nothing about a service's addresses was touched that prefers two of them: such a
    /// service stays as it is when the cluster changes.
    pub(crate) fn keeps_preference(&self, old: Option<&Self>) -> bool {
        old.is_some_and(|old| {
            self.policy.as_deref() == Some(PREFER_DUAL)
                && self.policy == old.policy
                && self.kind == old.kind
                && self.cluster_ips == old.cluster_ips
                && self.families == old.families
        })
    }

    /// Fills in families and policy. `cluster` are the families that there are addresses of, the
    /// default one first.
    pub(crate) fn init_ip_families(
        &mut self,
        old: Option<&Self>,
        cluster: &[&'static str],
        errors: &mut FieldErrors,
    ) {
        if self.is_external_name() || self.keeps_preference(old) {
            return;
        }
        let selectorless = self.cluster_ip == NONE && !self.selects;
        if self.policy.is_none() {
            self.policy = match old.and_then(|old| old.policy.clone()) {
                Some(policy) => Some(policy),
                // Its endpoints are written by hand and may be of any family.
                None if selectorless => Some(REQUIRE_DUAL.to_owned()),
                None => Some(SINGLE.to_owned()),
            };
        }
        self.validate(errors);
        if !errors.is_empty() {
            return;
        }
        if let Some(old) = old {
            self.release_second_family(old, errors);
        }
        self.infer_families(cluster, errors);
        if !errors.is_empty() {
            return;
        }
        if selectorless {
            // Explicitly allowed on any cluster.
            if self.families.is_empty() {
                self.families.extend(cluster.first().map(|family| (*family).to_owned()));
            }
            if !self.is_single() {
                self.add_other_family();
            }
            return;
        }
        let spec = path("spec");
        let policy = self.policy.clone().unwrap_or_default();
        if policy == REQUIRE_DUAL && cluster.len() < 2 {
            let why = "this cluster is not configured for dual-stack services";
            errors.invalid(spec.child("ipFamilyPolicy"), policy.as_str(), why);
        }
        for (at, family) in self.families.iter().enumerate() {
            if !cluster.contains(&family.as_str()) {
                let why = "not configured on this cluster";
                errors.invalid(spec.child("ipFamilies").index(at), family.as_str(), why);
            }
        }
        if !errors.is_empty() {
            return;
        }
        if self.families.is_empty() {
            self.families.extend(cluster.first().map(|family| (*family).to_owned()));
        }
        if !self.is_single() && cluster.len() == 2 {
            self.add_other_family();
        }
    }

    fn add_other_family(&mut self) {
        if let [only] = self.families.as_slice() {
            let other = if only == IPV4 { IPV6 } else { IPV4 };
            self.families.push(other.to_owned());
        }
    }

    /// Going from two families to one has to be asked for.
    fn release_second_family(&mut self, old: &Self, errors: &mut FieldErrors) {
        let policy = path("spec").child("ipFamilyPolicy");
        let own = self.policy.clone().unwrap_or_default();
        if self.is_single() {
            if old.cluster_ips == self.cluster_ips {
                self.cluster_ips.truncate(1);
            }
            if old.families == self.families {
                self.families.truncate(1);
            }
            return;
        }
        if !self.cluster_ips.is_empty() && self.cluster_ips.len() < old.cluster_ips.len() {
            let why = "must be 'SingleStack' to release the secondary cluster IP";
            errors.invalid(&policy, own.as_str(), why);
        }
        if !self.families.is_empty() && self.families.len() < old.families.len() {
            let why = "must be 'SingleStack' to release the secondary IP family";
            errors.invalid(&policy, own.as_str(), why);
        }
    }

    /// Addresses that were given say their family.
    fn infer_families(&mut self, cluster: &[&'static str], errors: &mut FieldErrors) {
        let spec = path("spec");
        if self.is_single() {
            let policy = spec.child("ipFamilyPolicy");
            let lists = [(&self.cluster_ips, "cluster IPs"), (&self.families, "IP families")];
            for (_, what) in lists.into_iter().filter(|(list, _)| list.len() == 2) {
                let why = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are \
                     specified"
                );
                errors.invalid(&policy, SINGLE, &why);
            }
        }
        for (at, ip) in self.cluster_ips.iter().enumerate() {
            if ip == NONE {
                break;
            }
            if at < self.families.len() {
                continue;
            }
            let family = family_of(ip);
            if cluster.contains(&family) {
                self.families.push(family.to_owned());
            } else {
                let why = format!("{family} is not configured on this cluster");
                let field = spec.child("clusterIPs").index(at);
                errors.invalid(field, self.cluster_ips.clone(), &why);
            }
        }
    }

    /// What must hold between the fields, so that nothing below has to think of odd cases.
    fn validate(&self, errors: &mut FieldErrors) {
        let spec = path("spec");
        let (ips, families) = (spec.child("clusterIPs"), spec.child("ipFamilies"));
        let shown = || Value::from(self.cluster_ips.clone());
        match self.cluster_ips.first() {
            None if !self.cluster_ip.is_empty() => errors.required(&ips, ""),
            Some(_) if self.cluster_ip.is_empty() => {
                errors.invalid(&ips, shown(), "must be empty when `clusterIP` is not specified");
            }
            Some(first) if *first != self.cluster_ip => {
                errors.invalid(&ips, shown(), "first value must match `clusterIP`");
            }
            _ => {}
        }
        let mut seen = std::collections::HashSet::new();
        for (at, family) in self.families.iter().enumerate() {
            if !matches!(family.as_str(), IPV4 | IPV6) {
                errors.not_supported(families.index(at), family, &[IPV4, IPV6]);
            }
            if !seen.insert(family.as_str()) {
                errors.duplicate(families.index(at), family.as_str());
            }
        }
        let policies = [PREFER_DUAL, REQUIRE_DUAL, SINGLE];
        if let Some(policy) = self.policy.as_deref().filter(|policy| !policies.contains(policy)) {
            errors.not_supported(spec.child("ipFamilyPolicy"), policy, &policies);
        }
        if !self.validate_ips(&ips, errors) {
            return;
        }
        if self.cluster_ips.len() > 1 {
            let (first, second) =
                (family_of(&self.cluster_ips[0]), family_of(&self.cluster_ips[1]));
            if first == second {
                let why = "may specify no more than one IP for each IP family";
                errors.invalid(&ips, shown(), why);
            }
        }
        if !self.is_headless() {
            for (at, (ip, family)) in self.cluster_ips.iter().zip(&self.families).enumerate() {
                if family_of(ip) != family && matches!(family.as_str(), IPV4 | IPV6) {
                    let why =
                        format!("expected an {family} value as indicated by `ipFamilies[{at}]`");
                    errors.invalid(ips.index(at), ip.as_str(), &why);
                }
            }
        }
    }

    fn validate_ips(&self, ips: &FieldPath, errors: &mut FieldErrors) -> bool {
        let mut valid = true;
        let shown = || Value::from(self.cluster_ips.clone());
        for (at, ip) in self.cluster_ips.iter().enumerate() {
            if at == 0 && ip == NONE {
                if self.cluster_ips.len() > 1 {
                    valid = false;
                    errors.invalid(ips, shown(), "'None' must be the first and only value");
                }
            } else if ip.parse::<IpAddr>().is_err() {
                valid = false;
                let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                errors.invalid(ips.index(at), ip.as_str(), why);
            }
        }
        if self.cluster_ips.len() > 2 {
            errors.invalid(ips, shown(), "may only hold up to 2 values");
        }
        valid
    }
}

/// Addresses and families stay once they are set; a second one may come and go.
pub(crate) fn validate_change(new: &Addressing, old: &Addressing, errors: &mut FieldErrors) {
    if new.is_external_name() || old.is_external_name() || (new.is_headless() && old.is_headless())
    {
        return;
    }
    let spec = path("spec");
    validate_list_change(
        &spec.child("clusterIPs"),
        "clusterIP",
        &new.cluster_ips,
        &old.cluster_ips,
        errors,
    );
    let released = |new: &[String], old: &[String]| new.len() == 1 && old.len() > 1;
    let policy = || match &new.policy {
        Some(policy) => Value::from(policy.as_str()),
        None => Value::Null,
    };
    if released(&new.cluster_ips, &old.cluster_ips) && !new.is_single() {
        let why = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        errors.invalid(spec.child("ipFamilyPolicy"), policy(), why);
    }
    if new.is_headless() != old.is_headless() {
        return;
    }
    validate_list_change(
        &spec.child("ipFamilies"),
        "ipFamily",
        &new.families,
        &old.families,
        errors,
    );
    if released(&new.families, &old.families) && !new.is_single() {
        let why = "must be set to 'SingleStack' when releasing the secondary ipFamily";
        errors.invalid(spec.child("ipFamilyPolicy"), policy(), why);
    }
}

fn validate_list_change(
    field: &FieldPath,
    what: &str,
    new: &[String],
    old: &[String],
    errors: &mut FieldErrors,
) {
    let shown = || Value::from(new.to_vec());
    if new.is_empty() && !old.is_empty() {
        errors.invalid(field.index(0), shown(), &format!("primary {what} can not be unset"));
    }
    let compared = if new.len() == old.len() { new.len() } else { 1 };
    for (at, (new, old)) in new.iter().zip(old).enumerate().take(compared) {
        if new != old {
            errors.invalid(field.index(at), shown(), "may not change once set");
        }
    }
}

pub(crate) fn family_of(ip: &str) -> &'static str {
    match ip.parse() {
        Ok(IpAddr::V4(_)) => IPV4,
        Ok(IpAddr::V6(_)) => IPV6,
        Err(_) => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    fn initialized(
        spec: Value,
        old: Option<Value>,
        cluster: &[&'static str],
    ) -> Result<Addressing, String> {
        let service = |spec| Addressing::of(&value!({"spec": (spec)}));
        let (mut new, old) = (service(spec), old.map(service));
        new.normalize(old.as_ref());
        let mut errors = FieldErrors::default();
        new.init_ip_families(old.as_ref(), cluster, &mut errors);
        if errors.is_empty() { Ok(new) } else { Err(errors.to_string()) }
    }

    #[test]
    fn families_follow_from_addresses_policy_and_cluster() {
        let (v4, both) = (&[IPV4][..], &[IPV4, IPV6][..]);
        let cases = [
            (value!({"type": "ClusterIP"}), v4, Ok((SINGLE, vec![IPV4]))),
            (value!({"clusterIP": "10.0.0.7"}), v4, Ok((SINGLE, vec![IPV4]))),
            (value!({"ipFamilyPolicy": "PreferDualStack"}), v4, Ok((PREFER_DUAL, vec![IPV4]))),
            (
                value!({"ipFamilyPolicy": "PreferDualStack"}),
                both,
                Ok((PREFER_DUAL, vec![IPV4, IPV6])),
            ),
            (value!({"ipFamilies": ["IPv6"]}), both, Ok((SINGLE, vec![IPV6]))),
            (value!({"clusterIP": "None"}), v4, Ok((REQUIRE_DUAL, vec![IPV4, IPV6]))),
            (value!({"clusterIP": "None", "selector": {"a": "b"}}), v4, Ok((SINGLE, vec![IPV4]))),
            (
                value!({"ipFamilyPolicy": "RequireDualStack"}),
                v4,
                Err("spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is \
                     not configured for dual-stack services"),
            ),
            (
                value!({"clusterIP": "fd00::1"}),
                v4,
                Err("spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on \
                     this cluster"),
            ),
            (
                value!({"clusterIPs": ["10.0.0.1"]}),
                v4,
                Err("spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: must be empty when \
                     `clusterIP` is not specified"),
            ),
        ];
        for (spec, cluster, expected) in cases {
            let got = initialized(spec.clone(), None, cluster);
            let got = got.map(|got| (got.policy.unwrap_or_default(), got.families));
            let expected = expected
                .map(|(policy, families)| {
                    (policy.to_owned(), families.into_iter().map(str::to_owned).collect::<Vec<_>>())
                })
                .map_err(str::to_owned);
            assert_eq!(got, expected, "{spec:?}");
        }
    }

    #[test]
    fn an_address_does_not_change() {
        let of = |ips: &[&str]| {
            let ips: Vec<String> = ips.iter().map(|ip| (*ip).to_owned()).collect();
            let first = ips.first().cloned().unwrap_or_default();
            Addressing::of(&value!({"spec": {"clusterIP": (first), "clusterIPs": (ips),
                "ipFamilyPolicy": "SingleStack"}}))
        };
        let cases = [
            (of(&["10.0.0.1"]), of(&["10.0.0.1"]), ""),
            (
                of(&["10.0.0.2"]),
                of(&["10.0.0.1"]),
                "spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set",
            ),
            (
                of(&[]),
                of(&["10.0.0.1"]),
                "spec.clusterIPs[0]: Invalid value: []: primary clusterIP can not be unset",
            ),
            (of(&["10.0.0.1", "fd00::1"]), of(&["10.0.0.1"]), ""),
            (of(&["10.0.0.1"]), of(&["10.0.0.1", "fd00::1"]), ""),
        ];
        for (new, old, expected) in cases {
            let mut errors = FieldErrors::default();
            validate_change(&new, &old, &mut errors);
            let said = if errors.is_empty() { String::new() } else { errors.to_string() };
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn what_was_given_stays_when_a_manifest_is_sent_again() {
        let old = value!({"type": "ClusterIP", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"});
        let again = initialized(value!({"type": "ClusterIP"}), Some(old.clone()), &[IPV4]).unwrap();
        assert_eq!(again, Addressing::of(&value!({"spec": (old)})));
    }
}
