//! Each source of a volume on its own. Persistent volumes use most of them as well.

use std::collections::BTreeSet;

use meta::{
    FieldErrors,
    field::RuleId,
    names::{is_dns1123_label, is_dns1123_subdomain, validate_label_selector},
};

use super::env;
use crate::core::persistent_volume_claim::validation as claim_validation;
use crate::validation::{cursor::Field, names::signer_name, template_meta};

/// The fields that must be filled.
fn require_all(source: &Field<'_>, names: &[&str], errors: &mut FieldErrors) {
    for name in names {
        source.get(name).require(errors);
    }
}

pub(crate) fn host_path(source: &Field<'_>, errors: &mut FieldErrors) {
    if !source.get("path").require(errors) {
        return;
    }
    no_backsteps(&source.get("path"), errors);
    let types = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    source.get("type").one_of(errors, &types);
}

pub(crate) fn git_repo(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("repository").require(errors);
    relative_path(&source.get("directory"), errors);
}

pub(crate) fn gce_disk(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("pdName").require(errors);
    partition(source, errors);
}

pub(crate) fn aws_disk(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("volumeID").require(errors);
    partition(source, errors);
}

fn partition(source: &Field<'_>, errors: &mut FieldErrors) {
    let partition = source.get("partition");
    // Compat: 0 is fine, whatever the message says.
    if !(0..=255).contains(&partition.int_or_zero()) {
        partition.invalid(errors, "must be between 1 and 255, inclusive");
    }
}

pub(crate) fn secret(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("secretName").require(errors);
    files(source, errors);
}

pub(crate) fn config_map(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("name").require(errors);
    files(source, errors);
}

fn files(source: &Field<'_>, errors: &mut FieldErrors) {
    mode(&source.get("defaultMode"), errors);
    for item in source.get("items").items() {
        key_to_path(&item, errors);
    }
}

fn key_to_path(item: &Field<'_>, errors: &mut FieldErrors) {
    require_all(item, &["key", "path"], errors);
    non_reserved_path(&item.get("path"), errors);
    mode(&item.get("mode"), errors);
}

fn mode(mode: &Field<'_>, errors: &mut FieldErrors) {
    if !(0..=0o777).contains(&mode.int_or_zero()) {
        mode.invalid(errors, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

pub(crate) fn nfs(source: &Field<'_>, errors: &mut FieldErrors) {
    require_all(source, &["server", "path"], errors);
    if !source.get("path").str().starts_with('/') {
        let path = source.get("path");
        path.invalid_value(errors, path.str(), "must be an absolute path");
    }
}

pub(crate) fn iscsi(source: &Field<'_>, errors: &mut FieldErrors) {
    iscsi_named(source, "must be valid format starting with iqn, eui, or naa", errors);
}

/// Of a persistent volume, which has fewer checks.
pub(crate) fn iscsi_of_volume(source: &Field<'_>, errors: &mut FieldErrors) {
    iscsi_target(source, "must be valid format", errors);
}

/// The name of the initiator comes last, behind what only one of the two has.
pub(crate) fn iscsi_initiator_of_volume(source: &Field<'_>, errors: &mut FieldErrors) {
    iscsi_initiator(source, "must be valid format", errors);
}

fn iscsi_named(source: &Field<'_>, wrong_start: &str, errors: &mut FieldErrors) {
    iscsi_target(source, wrong_start, errors);
    iscsi_initiator(source, wrong_start, errors);
}

fn iscsi_target(source: &Field<'_>, wrong_start: &str, errors: &mut FieldErrors) {
    source.get("targetPortal").require(errors);
    if source.get("iqn").require(errors) {
        initiator(&source.get("iqn"), wrong_start, errors);
    }
    source.get("lun").in_range(errors, 0, 255);
    let chap = source.bool_at(&["chapAuthDiscovery"]) || source.bool_at(&["chapAuthSession"]);
    if chap && !source.get("secretRef").is_set() {
        source.get("secretRef").required(errors, "");
    }
}

fn iscsi_initiator(source: &Field<'_>, wrong_start: &str, errors: &mut FieldErrors) {
    if source.get("initiatorName").is_set() {
        initiator(&source.get("initiatorName").named("initiatorname"), wrong_start, errors);
    }
}

/// An iSCSI name: `iqn.`, `eui.` or `naa.` and what belongs behind it.
fn initiator(name: &Field<'_>, wrong_start: &str, errors: &mut FieldErrors) {
    let text = name.str();
    let alphanumeric = |text: &str, count: usize| {
        let rest = text.get(4..).unwrap_or_default();
        rest.len() == count && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let good = match text.get(..3) {
        Some("iqn") => is_iqn(text),
        Some("eui") => alphanumeric(text, 16),
        Some("naa") => alphanumeric(text, 32),
        _ => {
            return name.invalid(errors, wrong_start);
        }
    };
    if !good {
        name.invalid(errors, "must be valid format");
    }
}

/// `iqn.yyyy-mm.domain:name`.
fn is_iqn(text: &str) -> bool {
    let Some((authority, name)) = text.strip_prefix("iqn.").and_then(|rest| rest.split_once(':'))
    else {
        return false;
    };
    let digits = |range: std::ops::Range<usize>| {
        authority.get(range).is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let domain = authority.get(8..).unwrap_or_default();
    digits(0..4)
        && authority.get(4..5) == Some("-")
        && digits(5..7)
        && authority.get(7..8) == Some(".")
        && !domain.is_empty()
        && domain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        && !name.is_empty()
        && !name.contains(|c: char| ",;*&$|".contains(c) || c.is_whitespace())
}

pub(crate) fn iscsi_name_length(volume: &Field<'_>, errors: &mut FieldErrors) {
    let portal = volume.str_at(&["iscsi", "targetPortal"]);
    let name = volume.get("name");
    let has_initiator = volume.value_at(&["iscsi", "initiatorName"]).is_some();
    if has_initiator && name.len() + 1 + portal.len() > 64 {
        let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 \
                   characters if iscsi.initiatorName is specified.";
        name.invalid(errors, why);
    }
}

pub(crate) fn glusterfs(source: &Field<'_>, errors: &mut FieldErrors) {
    require_all(source, &["endpoints", "path"], errors);
}

pub(crate) fn flocker(source: &Field<'_>, errors: &mut FieldErrors) {
    let (name, uuid) = (source.get("datasetName"), source.get("datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        source.required(errors, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        let why = "datasetName and datasetUUID can not be specified simultaneously";
        source.invalid_value(errors, "resource", why);
    }
    if name.str().contains('/') {
        name.invalid(errors, "must not contain '/'");
    }
}

pub(crate) fn claim(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("claimName").require(errors);
}

pub(crate) fn rbd(source: &Field<'_>, errors: &mut FieldErrors) {
    require_all(source, &["monitors", "image"], errors);
}

pub(crate) fn cinder(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("volumeID").require(errors);
    secret_ref(source, &["name"], errors);
}

/// A reference to a secret that may be left out.
pub(crate) fn secret_ref(source: &Field<'_>, parts: &[&str], errors: &mut FieldErrors) {
    let reference = source.get("secretRef");
    if reference.is_set() {
        require_all(&reference, parts, errors);
    }
}

pub(crate) fn ceph_fs(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("monitors").require(errors);
}

pub(crate) fn quobyte(source: &Field<'_>, errors: &mut FieldErrors) {
    let registry = source.get("registry");
    let why = "must be a host:port pair or multiple pairs separated by commas";
    if registry.is_empty() {
        registry.required(errors, why);
    } else if source.get("tenant").len() >= 65 {
        let why = "must be a UUID and may not exceed a length of 64 characters";
        source.get("tenant").required(errors, why);
    } else {
        for pair in registry.str().split(',') {
            let port = pair.rsplit_once(':');
            let bare =
                |host: &str| !host.contains(':') || host.starts_with('[') && host.ends_with(']');
            if !port.is_some_and(|(host, _)| bare(host)) {
                registry.invalid(errors, why);
            }
        }
    }
    source.get("volume").require(errors);
}

pub(crate) fn downward_api(source: &Field<'_>, errors: &mut FieldErrors) {
    mode(&source.get("defaultMode"), errors);
    for file in source.get("items").items() {
        // Compat: upstream doesn't say which of the files it is about.
        downward_api_file(&source.with(file.value()), errors);
    }
}

fn downward_api_file(file: &Field<'_>, errors: &mut FieldErrors) {
    file.get("path").require(errors);
    non_reserved_path(&file.get("path"), errors);
    let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
    if field.is_set() {
        env::field_ref(&field, env::VOLUME_FIELDS, errors);
        if resource.is_set() {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            file.invalid_value(errors, "resource", why);
        }
    } else if resource.is_set() {
        env::resource_ref(&resource, true, errors);
    } else {
        file.required(errors, "one of fieldRef and resourceFieldRef is required");
    }
    mode(&file.get("mode"), errors);
}

pub(crate) fn fc(source: &Field<'_>, errors: &mut FieldErrors) {
    let (names, ids) = (source.get("targetWWNs"), source.get("wwids"));
    if names.is_empty() && ids.is_empty() {
        names.required(errors, "must specify either targetWWNs or wwids, but not both");
    }
    if !names.is_empty() && !ids.is_empty() {
        names.invalid(errors, "targetWWNs and wwids can not be specified simultaneously");
    }
    if !names.is_empty() {
        if source.get("lun").is_set() {
            source.get("lun").in_range(errors, 0, 255);
        } else {
            source.get("lun").required(errors, "lun is required if targetWWNs is specified");
        }
    }
}

pub(crate) fn flex(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("driver").require(errors);
    for (key, option) in source.get("options").entries() {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let namespace = format!(".{}", namespace.to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            let why = "kubernetes.io and k8s.io namespaces are reserved";
            option.invalid_value(errors, key, why);
        }
    }
}

pub(crate) fn azure_file(source: &Field<'_>, errors: &mut FieldErrors) {
    require_all(source, &["secretName", "shareName"], errors);
}

pub(crate) fn vsphere(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("volumePath").require(errors);
}

pub(crate) fn photon(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("pdID").require(errors);
}

pub(crate) fn portworx(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("volumeID").require(errors);
}

pub(crate) fn azure_disk(source: &Field<'_>, errors: &mut FieldErrors) {
    require_all(source, &["diskName", "diskURI"], errors);
    source.get("cachingMode").one_of(errors, &["None", "ReadOnly", "ReadWrite"]);
    source.get("kind").one_of(errors, &["Dedicated", "Managed", "Shared"]);
    let (uri, managed) = (source.get("diskURI"), source.get("kind").is("Managed"));
    if managed && !uri.str().starts_with("/subscriptions/") {
        let disk = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/\
                    microsoft.compute/disks/{disk-id}";
        uri.not_supported(errors, &[disk]);
    }
    if source.get("kind").is_set() && !managed && !uri.str().starts_with("https://") {
        let blob = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
        uri.not_supported(errors, &[blob]);
    }
}

pub(crate) fn storage_os(source: &Field<'_>, errors: &mut FieldErrors) {
    storage_os_volume(source, errors);
    secret_ref(source, &["name"], errors);
}

pub(crate) fn storage_os_volume(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("volumeName").require_rule(errors, is_dns1123_label);
    source.get("volumeNamespace").rule_if_filled(errors, is_dns1123_label);
}

pub(crate) fn scale_io(source: &Field<'_>, errors: &mut FieldErrors) {
    require_all(source, &["gateway", "system", "volumeName"], errors);
}

pub(crate) fn csi(source: &Field<'_>, errors: &mut FieldErrors) {
    csi_driver_name(&source.get("driver"), errors);
    let secret = source.get("nodePublishSecretRef");
    if secret.is_set() && secret.get("name").require(errors) {
        let name = source.str_at(&["nodePublishSecretRef", "name"]);
        for why in is_dns1123_subdomain(name) {
            source.get("name").invalid_value(errors, name, &why);
        }
    }
}

pub(crate) fn csi_driver_name(name: &Field<'_>, errors: &mut FieldErrors) {
    if !name.require(errors) {
        return;
    }
    if name.len() > 63 {
        errors.too_long(name.path(), 63);
    }
    for why in is_dns1123_subdomain(&name.str().to_lowercase()) {
        name.invalid(errors, &why);
    }
}

pub(crate) fn ephemeral(source: &Field<'_>, errors: &mut FieldErrors) {
    let template = source.get("volumeClaimTemplate");
    if template.is_set() {
        template_meta(&template.get("metadata"), errors);
        claim_validation::spec(&template.get("spec"), errors);
    } else {
        template.required(errors, "");
    }
}

pub(crate) fn image(source: &Field<'_>, is_pod: bool, errors: &mut FieldErrors) {
    if is_pod {
        source.get("reference").require(errors);
    }
    source.get("pullPolicy").one_of_or_default(errors, &["Always", "IfNotPresent", "Never"]);
}

pub(crate) fn projected(source: &Field<'_>, errors: &mut FieldErrors) {
    mode(&source.get("defaultMode"), errors);
    let mut paths = Paths { volume: source, seen: BTreeSet::new() };
    for part in source.get("sources").items() {
        let mut found = 0;
        for name in ["secret", "configMap"] {
            let part = part.get(name);
            if !part.is_set() {
                continue;
            }
            found += 1;
            part.get("name").require(errors);
            for item in part.get("items").items() {
                key_to_path(&item, errors);
                paths.add(item.str_at(&["path"]), Some(part.str_at(&["name"])), errors);
            }
        }
        let downward = part.get("downwardAPI");
        if downward.is_set() {
            found += 1;
            for file in downward.get("items").items() {
                downward_api_file(&downward.with(file.value()), errors);
                paths.add(file.str_at(&["path"]), None, errors);
            }
        }
        let token = part.get("serviceAccountToken");
        if token.is_set() {
            found += 1;
            service_account_token(&token, source, errors);
        }
        let bundle = part.get("clusterTrustBundle");
        if bundle.is_set() {
            found += 1;
            trust_bundle(&bundle, errors);
            paths.add_any(bundle.str_at(&["path"]), None, errors);
        }
        let certificate = part.get("podCertificate");
        if certificate.is_set() {
            found += 1;
            pod_certificate(&certificate, &mut paths, errors);
        }
        if found > 1 {
            part.forbidden(errors, "may not specify more than 1 volume type per source");
        }
    }
}

/// The files of a projected volume, each of which may come from one source only.
struct Paths<'a> {
    volume: &'a Field<'a>,
    seen: BTreeSet<String>,
}

impl Paths<'_> {
    fn add(&mut self, path: &str, shown: Option<&str>, errors: &mut FieldErrors) {
        if !path.is_empty() {
            self.add_any(path, shown, errors);
        }
    }

    fn add_any(&mut self, path: &str, shown: Option<&str>, errors: &mut FieldErrors) {
        if !self.seen.insert(path.to_owned()) {
            let shown = shown.unwrap_or(path);
            self.volume.invalid_value(errors, shown, "conflicting duplicate paths");
        }
    }
}

fn service_account_token(token: &Field<'_>, volume: &Field<'_>, errors: &mut FieldErrors) {
    let seconds = token.get("expirationSeconds");
    if seconds.int().is_some_and(|seconds| seconds < 10 * 60) {
        seconds.invalid(errors, "may not specify a duration less than 10 minutes");
    }
    if seconds.int_or_zero() > 1 << 32 {
        seconds.invalid(errors, "may not specify a duration larger than 2^32 seconds");
    }
    // Compat: upstream names the path of the volume, which has none.
    let volume = volume.with(token.value());
    let path = volume.get("path");
    if path.require(errors) {
        errors.with_rule(TOKEN_PATH, |errors| non_reserved_path(&path, errors));
    }
}

/// The file of a projected service account token stays in its volume.
pub(crate) const TOKEN_PATH: RuleId = RuleId::new("service account token path");

fn trust_bundle(bundle: &Field<'_>, errors: &mut FieldErrors) {
    let (name, signer) = (bundle.get("name"), bundle.get("signerName"));
    match (name.is_set(), signer.is_set()) {
        (true, true) => {
            bundle.invalid(errors, "only one of name and signerName may be used");
        }
        (true, false) => {
            if name.is_empty() {
                name.required(errors, "must be a valid object name");
            }
            for why in crate::validation::names::cluster_trust_bundle_name(name.str()) {
                name.invalid(errors, &format!("not a valid clustertrustbundlename: {why}"));
            }
            if bundle.get("labelSelector").is_set() {
                let why = "labelSelector must be unset if name is specified";
                bundle.get("labelSelector").invalid(errors, why);
            }
        }
        (false, true) => {
            if signer.is_empty() {
                signer.required(errors, "must be a valid signer name");
            }
            signer_name(&signer, errors);
            let selector = bundle.get("labelSelector");
            validate_label_selector(selector.value(), &selector.path(), errors);
        }
        (false, false) => bundle.required(errors, "either name or signerName must be specified"),
    }
    bundle.get("path").require(errors);
    non_reserved_path(&bundle.get("path"), errors);
}

fn pod_certificate(certificate: &Field<'_>, paths: &mut Paths<'_>, errors: &mut FieldErrors) {
    signer_name(&certificate.get("signerName"), errors);
    let types = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    if !types.contains(&certificate.str_at(&["keyType"])) {
        certificate.get("keyType").not_supported(errors, &types);
    }
    let seconds = certificate.get("maxExpirationSeconds");
    if let Some(asked) = seconds.int() {
        let signer = certificate.str_at(&["signerName"]);
        let is_ours = signer
            .split('/')
            .next()
            .is_some_and(|domain| domain == "kubernetes.io" || domain.ends_with(".kubernetes.io"));
        let max = if is_ours { 24 * 60 * 60 } else { 91 * 24 * 60 * 60 };
        if asked < 3600 {
            seconds.invalid(errors, "if provided, maxExpirationSeconds must be >= 3600");
        }
        if asked > max {
            let why = format!("if provided, maxExpirationSeconds must be <= {max}");
            seconds.invalid(errors, &why);
        }
    }
    let mut found = false;
    for name in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let path = certificate.get(name);
        if !path.is_empty() {
            found = true;
            non_reserved_path(&path, errors);
            paths.add(path.str(), None, errors);
        }
    }
    if !found {
        let why = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        certificate.required(errors, why);
    }
}

/// A path that stays where it is: relative, and without `..`.
pub(crate) fn relative_path(path: &Field<'_>, errors: &mut FieldErrors) {
    if path.str().starts_with('/') {
        path.invalid(errors, "must be a relative path");
    }
    no_backsteps(path, errors);
}

pub(crate) fn no_backsteps(path: &Field<'_>, errors: &mut FieldErrors) {
    if path.str().split('/').any(|part| part == "..") {
        path.invalid(errors, "must not contain '..'");
    }
}

/// Names that start with `..` belong to the kubelet.
fn non_reserved_path(path: &Field<'_>, errors: &mut FieldErrors) {
    relative_path(path, errors);
    if path.str().starts_with("..") && !path.str().starts_with("../") {
        path.invalid(errors, "must not start with '..'");
    }
}
