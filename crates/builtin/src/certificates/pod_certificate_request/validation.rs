//! Pod certificate requests: what a kubelet asks for in the name of a pod, and what a signer answers.

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use base64::Engine as _;
use meta::{
    FieldErrors, Value,
    field::FieldReason,
    names::{is_qualified_name, name_is_dns_subdomain},
    time::Time,
};
use x509_parser::{
    certification_request::X509CertificationRequest,
    extensions::GeneralName,
    prelude::{FromDer, SubjectPublicKeyInfo, X509Certificate},
    public_key::PublicKey,
};

use crate::certificates::pem;
use crate::validation::{
    conditions,
    cursor::{Field, IMMUTABLE},
    names::signer_name,
};

pub(crate) fn request(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let signer = spec.get("signerName");
    signer_name(&signer, errors);
    user_annotations(&spec.get("unverifiedUserAnnotations"), errors);
    for (name, uid) in [
        ("podName", "podUID"),
        ("serviceAccountName", "serviceAccountUID"),
        ("nodeName", "nodeUID"),
    ] {
        let (name, uid) = (spec.get(name), spec.get(uid));
        for why in name_is_dns_subdomain(name.str(), false) {
            name.invalid_value(errors, name.str(), &why);
        }
        if uid.is_empty() {
            uid.invalid_value(errors, "", "must not be empty");
        }
        if uid.len() > 128 {
            errors.too_long(uid.path(), 128);
        }
    }
    let seconds = spec.get("maxExpirationSeconds");
    let Some(asked) = seconds.int() else { return seconds.required(errors, "must be set") };
    let host = signer.str().split('/').next().unwrap_or_default();
    let is_ours = host == "kubernetes.io" || host.ends_with(".kubernetes.io");
    let max = if is_ours { DAY } else { 91 * DAY };
    if !(HOUR..=max).contains(&asked) {
        seconds.invalid(errors, &format!("must be in the range [{HOUR}, {max}]"));
    }
    let [stub, key, proof] =
        ["stubPKCS10Request", "pkixPublicKey", "proofOfPossession"].map(|name| spec.get(name));
    match (stub.is_empty(), key.is_empty(), proof.is_empty()) {
        (false, true, true) => stub_request(&stub, errors),
        (true, false, false) => public_key(&key, &proof, spec.get("podUID").str(), errors),
        _ => {
            let why = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) \
                       must be set";
            omitted(&spec, why, errors);
        }
    }
}

const HOUR: i64 = 60 * 60;
const DAY: i64 = 24 * HOUR;
const REQUEST_BYTES_MAX: usize = 10 * 1024;
const CHAIN_BYTES_MAX: usize = 100 * 1024;

/// Says what is wrong without showing it.
fn omitted(field: &Field<'_>, why: &str, errors: &mut FieldErrors) {
    errors.push(FieldReason::Invalid, field.path(), format!("Invalid value: {why}"));
}

fn user_annotations(annotations: &Field<'_>, errors: &mut FieldErrors) {
    const BYTES_MAX: usize = 256 * 1024;
    let mut bytes = 0;
    for (key, value) in annotations.entries() {
        bytes += key.len() + value.len();
        let key = key.to_lowercase();
        if key.is_empty() {
            annotations.required(errors, "");
            continue;
        }
        let mut wrong = is_qualified_name(&key);
        if wrong.is_empty() && key.matches('/').count() != 1 {
            wrong.push("must be a domain-prefixed key (such as \"acme.io/foo\")".to_owned());
        }
        for why in wrong {
            annotations.invalid_value(errors, key.as_str(), &why);
        }
    }
    if bytes > BYTES_MAX {
        errors.too_long(annotations.path(), BYTES_MAX);
    }
}

fn bytes_of(field: &Field<'_>) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(field.str()).unwrap_or_default()
}

fn stub_request(stub: &Field<'_>, errors: &mut FieldErrors) {
    let bytes = bytes_of(stub);
    if bytes.len() > REQUEST_BYTES_MAX {
        return errors.too_long(stub.path(), REQUEST_BYTES_MAX);
    }
    let Ok((_, request)) = X509CertificationRequest::from_der(&bytes) else {
        return omitted(stub, "must be a valid PKCS#10 CSR", errors);
    };
    let key = &request.certification_request_info.subject_pki;
    match Key::of(key) {
        Key::Unknown => {
            let why = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
            return omitted(stub, why, errors);
        }
        Key::Curve(Curve::Other(name)) => {
            let why = "elliptic public keys must use curve P256, P384, or P521";
            return stub.invalid_value(errors, format!("curve {name}"), why);
        }
        Key::Rsa(bits) if !matches!(bits, 3072 | 4096) => {
            let why = "RSA keys must have modulus size 3072 or 4096";
            return stub.invalid_value(errors, format!("{bits}-bit modulus"), why);
        }
        Key::Curve(_) | Key::Rsa(_) | Key::Ed25519 => {}
    }
    if !is_signed(&request) {
        omitted(stub, "invalid signature", errors);
    }
}

/// Whether the requester holds the private key.
fn is_signed(request: &X509CertificationRequest<'_>) -> bool {
    let info = &request.certification_request_info;
    if !matches!(Key::of(&info.subject_pki), Key::Curve(Curve::P521)) {
        return request.verify_signature().is_ok();
    }
    // The curve is unknown to the parser.
    let algorithm: &'static dyn VerificationAlgorithm =
        match request.signature_algorithm.algorithm.to_id_string().as_str() {
            "1.2.840.10045.4.3.2" => &signature::ECDSA_P521_SHA256_ASN1,
            "1.2.840.10045.4.3.3" => &signature::ECDSA_P521_SHA384_ASN1,
            "1.2.840.10045.4.3.4" => &signature::ECDSA_P521_SHA512_ASN1,
            _ => return false,
        };
    let key = UnparsedPublicKey::new(algorithm, &info.subject_pki.subject_public_key.data);
    key.verify(info.raw, &request.signature_value.data).is_ok()
}

/// The older way: a key, and the pod's uid signed with it.
fn public_key(key: &Field<'_>, proof: &Field<'_>, uid: &str, errors: &mut FieldErrors) {
    let (key_bytes, signed) = (bytes_of(key), bytes_of(proof));
    for (field, bytes) in [(key, &key_bytes), (proof, &signed)] {
        if bytes.len() > REQUEST_BYTES_MAX {
            return errors.too_long(field.path(), REQUEST_BYTES_MAX);
        }
    }
    let Ok((_, info)) = SubjectPublicKeyInfo::from_der(&key_bytes) else {
        return key.invalid(errors, "must be a valid PKIX-serialized public key");
    };
    let algorithm: &'static dyn VerificationAlgorithm = match Key::of(&info) {
        Key::Ed25519 => &signature::ED25519,
        Key::Curve(Curve::P256) => &signature::ECDSA_P256_SHA256_ASN1,
        Key::Curve(Curve::P384) => &signature::ECDSA_P384_SHA256_ASN1,
        Key::Curve(Curve::P521) => &signature::ECDSA_P521_SHA256_ASN1,
        Key::Curve(Curve::Other(name)) => {
            let why = "elliptic public keys must use curve P256 or P384";
            return key.invalid_value(errors, format!("curve {name}"), why);
        }
        Key::Rsa(3072 | 4096) => &signature::RSA_PSS_2048_8192_SHA256,
        Key::Rsa(bits) => {
            let why = "RSA keys must have modulus size 3072 or 4096";
            return key.invalid_value(errors, format!("{bits}-bit modulus"), why);
        }
        Key::Unknown => {
            let why = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
            return key.invalid(errors, why);
        }
    };
    let verifier = UnparsedPublicKey::new(algorithm, &info.subject_public_key.data);
    if verifier.verify(uid.as_bytes(), &signed).is_err() {
        omitted(proof, NOT_PROVED, errors);
    }
}

const NOT_PROVED: &str = "could not verify proof-of-possession signature";

enum Key {
    Ed25519,
    Curve(Curve),
    /// The bits of its modulus.
    Rsa(usize),
    Unknown,
}

enum Curve {
    P256,
    P384,
    P521,
    Other(&'static str),
}

impl Key {
    fn of(info: &SubjectPublicKeyInfo<'_>) -> Self {
        if info.algorithm.algorithm.to_id_string() == "1.3.101.112" {
            return Self::Ed25519;
        }
        match info.parsed() {
            Ok(PublicKey::RSA(key)) => Self::Rsa(key.key_size()),
            Ok(PublicKey::EC(_)) => {
                let curve = info.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
                match curve.map(|oid| oid.to_id_string()).as_deref() {
                    Some("1.2.840.10045.3.1.7") => Self::Curve(Curve::P256),
                    Some("1.3.132.0.34") => Self::Curve(Curve::P384),
                    Some("1.3.132.0.35") => Self::Curve(Curve::P521),
                    Some("1.3.132.0.33") => Self::Curve(Curve::Other("P-224")),
                    _ => Self::Unknown,
                }
            }
            _ => Self::Unknown,
        }
    }
}

pub(crate) fn request_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    if object.get("spec") != old.get("spec") {
        Field::root(object).get("spec").invalid(errors, IMMUTABLE);
    }
}

const OUTCOMES: [&str; 3] = ["Issued", "Denied", "Failed"];

pub(crate) fn status_update(object: &Value, old: &Value, now: Time, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let status = root.get("status");
    outcome_conditions(&status.get("conditions"), errors);
    if !errors.is_empty() {
        return;
    }
    let is = |request: &Value, outcome: &str| {
        request.items_at(&["status", "conditions"]).iter().any(|condition| {
            condition.str_at(&["type"]) == outcome && condition.str_at(&["status"]) == "True"
        })
    };
    let is_given = |status: &&Value| !status.as_object().is_some_and(meta::Map::is_empty);
    let changed = object.get("status").filter(is_given) != old.get("status").filter(is_given);
    if OUTCOMES.iter().any(|outcome| is(old, outcome)) {
        if changed {
            let why = "immutable after PodCertificateRequest is issued, denied, or failed";
            omitted(&status, why, errors);
        }
    } else if is(object, "Denied") || is(object, "Failed") {
        let fields = status.value().and_then(Value::as_object);
        if fields.into_iter().flat_map(meta::Map::keys).any(|name| name != "conditions") {
            let why = "non-condition status fields must be empty when denying or failing the \
                       PodCertificateRequest";
            omitted(&status, why, errors);
        }
    } else if is(object, "Issued") {
        if let Err(wrong) = issued(&status, &root.get("spec"), now, errors) {
            wrong.report(&status, errors);
        }
    } else if changed {
        let why = "status is immutable unless transitioning to \"Issued\", \"Denied\", or \
                   \"Failed\"";
        omitted(&status, why, errors);
    }
}

fn outcome_conditions(list: &Field<'_>, errors: &mut FieldErrors) {
    let mut known = 0;
    for (at, condition) in list.items().enumerate() {
        // Compat: upstream writes the place as if it was a name.
        let place = list.path().child(&format!("[{at}]"));
        let kind = condition.str_at(&["type"]);
        if !OUTCOMES.contains(&kind) {
            errors.not_supported(place.child("type"), kind, &OUTCOMES);
            continue;
        }
        known += 1;
        if known > 1 {
            let why = "There may be at most one condition with type \"Issued\", \"Denied\", or \
                       \"Failed\"";
            errors.invalid(place.child("type"), kind, why);
        }
        if condition.str_at(&["status"]) != "True" {
            errors.not_supported(place.child("status"), condition.str_at(&["status"]), &["True"]);
        }
    }
    conditions(list, errors);
}

/// The first thing that is wrong with an answer.
struct Wrong {
    field: &'static str,
    shown: Option<Value>,
    why: String,
}

impl Wrong {
    fn report(self, status: &Field<'_>, errors: &mut FieldErrors) {
        let field = status.get(self.field);
        match self.shown {
            Some(shown) => field.invalid_value(errors, shown, &self.why),
            None => field.invalid(errors, &self.why),
        }
    }
}

fn issued(
    status: &Field<'_>,
    spec: &Field<'_>,
    now: Time,
    errors: &mut FieldErrors,
) -> Result<(), Wrong> {
    let chain = status.get("certificateChain");
    let wrong = |why: &str| Wrong { field: "certificateChain", shown: None, why: why.to_owned() };
    if chain.len() > CHAIN_BYTES_MAX {
        errors.too_long(chain.path(), CHAIN_BYTES_MAX);
        return Ok(());
    }
    let blocks = pem::blocks(chain.str().as_bytes());
    let Some((leaf, others)) = blocks.split_first() else {
        return Err(wrong("issued certificate chain must contain at least one certificate"));
    };
    if leaf.label != "CERTIFICATE" {
        let why = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks";
        return Err(wrong(why));
    }
    let (_, leaf) = X509Certificate::from_der(&leaf.contents)
        .map_err(|_| wrong("leaf certificate does not parse as valid X.509"))?;
    leaf_names(&leaf, &chain, errors);
    if requested_key(spec).as_deref() != Some(leaf.public_key().raw) {
        return Err(wrong("leaf certificate was not issued to the requested public key"));
    }
    let times = [
        ("notBefore", "must be present and consistent with the issued certificate"),
        ("notAfter", "must be present and consistent with the issued certificate"),
        ("beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]"),
    ];
    for (name, why) in times {
        if !status.get(name).is_set() {
            status.get(name).required(errors, why);
        }
    }
    if !errors.is_empty() {
        return Ok(());
    }
    validity(status, spec, &leaf, now)?;
    for block in others {
        if block.label != "CERTIFICATE" {
            let why = "issued certificate chain must consist entirely of CERTFICATE PEM blocks";
            return Err(wrong(why));
        }
        if X509Certificate::from_der(&block.contents).is_err() {
            return Err(wrong("intermediate certificate does not parse as valid X.509"));
        }
    }
    Ok(())
}

fn leaf_names(leaf: &X509Certificate<'_>, chain: &Field<'_>, errors: &mut FieldErrors) {
    let Ok(Some(names)) = leaf.subject_alternative_name() else { return };
    for name in &names.value.general_names {
        let GeneralName::DNSName(name) = name else { continue };
        let rules = [
            (name.is_empty(), "leaf certificate should not contain empty DNSName"),
            (name.contains(".."), "leaf certificate's DNSName should not contain '..'"),
            (
                name.starts_with('.') || name.ends_with('.'),
                "leaf certificate's DNSName should not start or end with '.'",
            ),
        ];
        for (_, why) in rules.into_iter().filter(|(broken, _)| *broken) {
            chain.invalid_value(errors, *name, why);
        }
    }
}

/// The bytes of the key that the request is about.
fn requested_key(spec: &Field<'_>) -> Option<Vec<u8>> {
    let stub = bytes_of(&spec.get("stubPKCS10Request"));
    if stub.is_empty() {
        return Some(bytes_of(&spec.get("pkixPublicKey")));
    }
    let (_, request) = X509CertificationRequest::from_der(&stub).ok()?;
    Some(request.certification_request_info.subject_pki.raw.to_vec())
}

fn validity(
    status: &Field<'_>,
    spec: &Field<'_>,
    leaf: &X509Certificate<'_>,
    now: Time,
) -> Result<(), Wrong> {
    let at = |name: &str| Time::parse(status.get(name).str()).map_or(0, Time::unix_seconds);
    let (start, end) =
        (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
    let wrong = |field: &'static str, why: &str| {
        let shown = status.get(field).str().replace('T', " ").replace('Z', " +0000 UTC");
        Err(Wrong { field, shown: Some(shown.into()), why: why.to_owned() })
    };
    if at("notBefore") != start {
        let why = "must be set to the NotBefore time encoded in the leaf certificate";
        return wrong("notBefore", why);
    }
    if (start - now.unix_seconds()).abs() >= 5 * 60 {
        let why = "must be set to within 5 minutes of kube-apiserver's current time";
        return wrong("notBefore", why);
    }
    if at("notAfter") != end {
        return wrong(
            "notAfter",
            "must be set to the NotAfter time encoded in the leaf certificate",
        );
    }
    let max = spec.get("maxExpirationSeconds").int_or_zero();
    let lifetime = end - start;
    let wrong_lifetime = |why: String| {
        let (hours, minutes, seconds) = (lifetime / 3600, lifetime / 60 % 60, lifetime % 60);
        let shown = Some(format!("{hours}h{minutes}m{seconds}s").into());
        Err(Wrong { field: "certificateChain", shown, why })
    };
    if lifetime < HOUR {
        return wrong_lifetime("leaf certificate lifetime must be >= 1 hour".to_owned());
    }
    if lifetime > max {
        let why = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({max})");
        return wrong_lifetime(why);
    }
    if at("beginRefreshAt") < start + 10 * 60 {
        return wrong("beginRefreshAt", "must be at least 10 minutes after status.notBefore");
    }
    if at("beginRefreshAt") > end - 10 * 60 {
        return wrong("beginRefreshAt", "must be at least 10 minutes before status.notAfter");
    }
    Ok(())
}
