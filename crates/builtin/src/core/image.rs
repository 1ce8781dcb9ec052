//! The names of container images, as far as defaults depend on them.

/// The default `imagePullPolicy`: `Always` for the tag `latest`, which moves. A name that can't be
/// parsed counts as one with a fixed tag.
pub(crate) fn default_pull_policy(image: &str) -> &'static str {
    if is_latest(image) { "Always" } else { "IfNotPresent" }
}

/// Whether the image is named by the tag `latest`, or by neither a tag nor a digest.
fn is_latest(image: &str) -> bool {
    let Some((domain, remainder)) = split_domain(image) else { return false };
    let (name, digest) = match remainder.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (remainder, None),
    };
    let (path, tag) = match name.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (name, None),
    };
    // Docker's own images are below `library`, which counts for the length.
    let length = if domain.is_none() && !path.contains('/') { path.len() + 8 } else { path.len() };
    let readable = length <= PATH_LENGTH_MAX
        && domain.is_none_or(is_domain)
        && path.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    readable && (tag == Some("latest") || (tag.is_none() && digest.is_none()))
}

const PATH_LENGTH_MAX: usize = 255;

/// A first part is a domain only if it looks like one. None if the name isn't one at all.
fn split_domain(image: &str) -> Option<(Option<&str>, &str)> {
    let is_id = image.len() == 64 && image.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_id {
        return None;
    }
    let has_capitals = |text: &str| text.bytes().any(|byte| byte.is_ascii_uppercase());
    Some(match image.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':']) || first == "localhost" || has_capitals(first) =>
        {
            (Some(first), rest)
        }
        _ => (None, image),
    })
}

/// `example.com`, `localhost:5000`, `[::1]:5000`
fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (domain, None),
    };
    let is_host = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']').is_some_and(|address| {
            !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':')
        }),
        None => host.split('.').all(|part| {
            part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && !(part.is_empty() || part.starts_with('-') || part.ends_with('-'))
        }),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    is_host && port.is_none_or(is_port)
}

/// Small letters and digits, with `.`, `_`, `__` or any number of `-` between them.
fn is_path_component(component: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    if !ends.is_some_and(|(first, last)| is_word(*first) && is_word(*last)) {
        return false;
    }
    let mut separators = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    separators.all(|text| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&tag.len())
        && is_word(tag.as_bytes()[0])
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

/// `sha256:…`, of the right length.
fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::default_pull_policy;

    #[test]
    fn images_by_a_moving_tag_are_always_pulled() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let cases = [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1.27", false),
            ("library/nginx", true),
            ("localhost:5000/nginx", true),
            ("localhost:5000/nginx:1", false),
            ("example.com/a/b__c/d-e", true),
            ("[::1]:5000/nginx", true),
            ("Host/nginx", true),
            (&format!("nginx@{digest}"), false),
            (&format!("nginx:latest@{digest}"), true),
            // None of these can be read.
            ("", false),
            ("Nginx", false),
            ("example.com/Nginx", false),
            ("example..com/nginx", false),
            ("a//b", false),
            ("a..b", false),
            ("-a", false),
            ("nginx:", false),
            ("nginx latest", false),
            ("nginx:latest@sha256:1", false),
            (&"a".repeat(64), false),
            (&"b".repeat(248), false),
            (&"b".repeat(247), true),
        ];
        for (image, always) in cases {
            assert_eq!(default_pull_policy(image) == "Always", always, "{image}");
        }
    }
}
