//! Files of one volume that hide each other.

use meta::field::quote;

use crate::validation::cursor::Field;

/// A file in a volume, and where it comes from where that isn't clear.
#[derive(Clone, PartialEq)]
struct File {
    path: String,
    source: String,
}

impl File {
    fn new(path: &str, source: &str) -> Self {
        Self { path: path.trim_end_matches('/').to_owned(), source: source.to_owned() }
    }

    /// Both at the same place, or one in the directory that the other is.
    fn hides(&self, other: &Self) -> bool {
        let [one, two] = [self, other].map(|file| format!("{}/", file.path));
        !self.path.is_empty()
            && !other.path.is_empty()
            && (one.starts_with(&two) || two.starts_with(&one))
    }
}

impl std::fmt::Display for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&quote(&self.path))?;
        if self.source.is_empty() { Ok(()) } else { write!(f, " ({})", self.source) }
    }
}

pub(super) fn overlaps(volumes: &Field<'_>, texts: &mut Vec<String>) {
    for volume in volumes.items() {
        for (source, name) in [("configMap", "name"), ("secret", "secretName"), ("downwardAPI", "")]
        {
            let content = volume.get(source);
            let files = items(&content, "");
            let title = match source {
                "configMap" => format!("ConfigMap {}", quote(content.str_at(&[name]))),
                "secret" => format!("Secret {}", quote(content.str_at(&[name]))),
                _ => "DownwardAPI".to_owned(),
            };
            report(&volume, &title, files, texts);
        }
        let projected = volume.get("projected");
        let sources = projected.get("sources");
        let mut files = Vec::new();
        for source in sources.items() {
            if source.is_empty() {
                let name = quote(volume.str_at(&["name"]));
                texts.push(format!("volume {name} (Projected) has no sources provided"));
            }
            files.extend(projected_files(&source));
        }
        report(&volume, "Projected", files, texts);
    }
}

fn items(content: &Field<'_>, source: &str) -> Vec<File> {
    content.get("items").items().map(|item| File::new(item.str_at(&["path"]), source)).collect()
}

fn projected_files(source: &Field<'_>) -> Vec<File> {
    let [map, secret, downward, token, bundle, certificate] = [
        "configMap",
        "secret",
        "downwardAPI",
        "serviceAccountToken",
        "clusterTrustBundle",
        "podCertificate",
    ]
    .map(|name| source.get(name));
    if map.get("items").is_set() {
        return items(&map, &format!("ConfigMap {}", quote(map.str_at(&["name"]))));
    }
    if secret.get("items").is_set() {
        return items(&secret, &format!("Secret {}", quote(secret.str_at(&["name"]))));
    }
    if downward.get("items").is_set() {
        return items(&downward, "DownwardAPI");
    }
    if token.is_set() {
        return vec![File::new(token.str_at(&["path"]), "ServiceAccountToken")];
    }
    if bundle.is_set() {
        let name = if bundle.get("name").is_set() { "name" } else { "signerName" };
        let title = format!("ClusterTrustBundle {}", quote(bundle.str_at(&[name])));
        return vec![File::new(bundle.str_at(&["path"]), &title)];
    }
    let parts = [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ];
    let parts = parts.iter().filter(|(field, _)| !certificate.get(field).is_empty());
    parts.map(|(field, title)| File::new(certificate.str_at(&[field]), title)).collect()
}

fn report(volume: &Field<'_>, title: &str, files: Vec<File>, texts: &mut Vec<String>) {
    let name = quote(volume.str_at(&["name"]));
    for (at, file) in files.iter().enumerate() {
        for earlier in files[..at].iter().filter(|earlier| file.hides(earlier)) {
            texts
                .push(format!("volume {name} ({title}): overlapping paths: {file} with {earlier}"));
        }
    }
}
