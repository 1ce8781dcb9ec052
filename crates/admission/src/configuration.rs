//! The file of `--admission-control-config-file`: an `AdmissionConfiguration`, decoded strictly, with a
//! configuration for each plugin, in the file or in one of its own.

use std::path::{Path, PathBuf};

use codec::config_file::{self, Document, FieldType};
use meta::{Value, field::quote};

/// The configurations of the plugins, as read.
#[derive(Clone, Debug, Default)]
pub struct Configurations {
    plugins: Vec<PluginConfiguration>,
}

#[derive(Clone, Debug)]
pub struct PluginConfiguration {
    pub plugin: String,
    pub value: Value,
    /// The file that holds it, for errors.
    pub file: PathBuf,
}

/// A file that is larger is refused instead of read.
const FILE_BYTES_MAX: u64 = 4 << 20;

impl Configurations {
    pub fn read(file: &Path) -> Result<Self, String> {
        let wrong = |why: String| {
            let file = quote(&file.display().to_string());
            format!("unable to read admission control configuration from {file} [{why}]")
        };
        let bytes = read_bounded(file).map_err(wrong)?;
        let document = Document::load(&bytes).map_err(wrong)?;
        if let Err(why) = config_file::check_kind(&document.value, &KINDS) {
            return Self::legacy(file, &document.value).ok_or_else(|| wrong(why));
        }
        let value = document.check(&FILE).map_err(wrong)?;
        let mut plugins: Vec<PluginConfiguration> = Vec::new();
        for entry in value.items_at(&["plugins"]) {
            let plugin = entry.str_at(&["name"]).to_owned();
            if plugins.iter().any(|known| known.plugin == plugin) {
                return Err(wrong(format!("plugin {} is configured twice", quote(&plugin))));
            }
            let inline = entry.get("configuration").filter(|value| !value.is_null());
            let path = entry.str_at(&["path"]);
            let (value, file) = match (inline, path) {
                (Some(value), _) => (value.clone(), file.to_path_buf()),
                (None, "") => continue,
                (None, path) => {
                    let path = file.parent().unwrap_or(Path::new(".")).join(path);
                    let of_plugin = |why| {
                        let (name, path) = (quote(&plugin), path.display());
                        wrong(format!("configuration {path} of plugin {name}: {why}"))
                    };
                    let bytes = read_bounded(&path).map_err(of_plugin)?;
                    let document = Document::load(&bytes).map_err(of_plugin)?;
                    // The plugin knows the fields.
                    (document.check(&FieldType::Any).map_err(of_plugin)?, path)
                }
            };
            plugins.push(PluginConfiguration { plugin, value, file });
        }
        Ok(Self { plugins })
    }

    /// Compat: before there was an `AdmissionConfiguration`, the file was that of one plugin.
    fn legacy(file: &Path, value: &Value) -> Option<Self> {
        let known = [
            ("imagePolicy", "ImagePolicyWebhook"),
            ("podNodeSelectorPluginConfig", "PodNodeSelector"),
        ];
        let mut plugins = Vec::new();
        for (field, plugin) in known {
            if value.get(field).is_some() {
                let (plugin, file) = (plugin.to_owned(), file.to_path_buf());
                plugins.push(PluginConfiguration { plugin, value: value.clone(), file });
            }
        }
        (!plugins.is_empty()).then_some(Self { plugins })
    }

    pub fn of(&self, plugin: &str) -> Option<&PluginConfiguration> {
        self.plugins.iter().find(|configuration| configuration.plugin == plugin)
    }

    /// The plugins that have one.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.plugins.iter().map(|configuration| configuration.plugin.as_str())
    }

    #[cfg(test)]
    pub(crate) fn for_test(plugin: &str, value: Value) -> Self {
        let (plugin, file) = (plugin.to_owned(), PathBuf::from("test.yaml"));
        Self { plugins: vec![PluginConfiguration { plugin, value, file }] }
    }
}

impl PluginConfiguration {
    /// Checks the version, kind and fields of the configuration.
    pub fn decode(&self, kinds: &[(&str, &str)], fields: &FieldType) -> Result<&Value, String> {
        config_file::check_kind(&self.value, kinds).map_err(|why| self.wrong(&why))?;
        self.decode_unversioned(fields)
    }

    /// For configurations without version and kind.
    pub fn decode_unversioned(&self, fields: &FieldType) -> Result<&Value, String> {
        config_file::check_fields(&self.value, fields).map_err(|why| self.wrong(&why))?;
        Ok(&self.value)
    }

    pub fn wrong(&self, why: &str) -> String {
        let plugin = quote(&self.plugin);
        format!("couldn't init admission plugin {plugin}: {}: {why}", self.file.display())
    }
}

const KINDS: [(&str, &str); 2] = [
    ("apiserver.config.k8s.io/v1", "AdmissionConfiguration"),
    ("apiserver.k8s.io/v1alpha1", "AdmissionConfiguration"),
];

const FILE: FieldType = FieldType::Fields(&[
    ("apiVersion", FieldType::Text),
    ("kind", FieldType::Text),
    (
        "plugins",
        FieldType::List(&FieldType::Fields(&[
            ("name", FieldType::Text),
            ("path", FieldType::Text),
            ("configuration", FieldType::Any),
        ])),
    ),
]);

fn read_bounded(file: &Path) -> Result<Vec<u8>, String> {
    let bytes = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes"));
    }
    std::fs::read(file).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Drop for Dir {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn files_are_read_strictly() {
        let name = format!("pintle-admission-{}", std::process::id());
        let dir = Dir(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&dir.0).unwrap();
        std::fs::write(dir.0.join("own.yaml"), "kind: Configuration\nx: 1\n").unwrap();
        std::fs::write(dir.0.join("twice.yaml"), "a: 1\nb: 2\na: 3\n").unwrap();
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
        let cases = [
            (format!("{head}plugins: []\n"), ""),
            (
                format!(
                    "{head}plugins:\n- {{name: A, path: own.yaml}}\n- {{name: B, configuration: {{y: 2}}}}\n"
                ),
                "A B",
            ),
            (format!("{head}plugins:\n- name: A\n"), ""),
            (
                format!("{head}plugin: []\n"),
                "strict decoding error: line 3: unknown field \"plugin\"",
            ),
            (
                format!("{head}plugins:\n- {{name: A, config: 1}}\n"),
                "strict decoding error: line 4: unknown field \"plugins[0].config\"",
            ),
            (
                format!("{head}plugins: []\nkind: AdmissionConfiguration\n"),
                "strict decoding error: line 4: key \"kind\" already set in map",
            ),
            (
                format!("{head}plugins:\n- {{name: A, path: twice.yaml}}\n"),
                "line 3: key \"a\" already set in map",
            ),
            (
                format!("{head}plugins: {{}}\n"),
                "cannot unmarshal object into field plugins of type list",
            ),
            (
                format!(
                    "{head}plugins:\n- {{name: A, configuration: {{}}}}\n- {{name: A, configuration: {{}}}}\n"
                ),
                "plugin \"A\" is configured twice",
            ),
            ("a: [".to_owned(), "yaml: line 1"),
            ("kind: Pod\n".to_owned(), "Object 'apiVersion' is missing"),
            (
                "kind: Pod\napiVersion: v1\n".to_owned(),
                "no kind \"Pod\" is registered for version \"v1\": only AdmissionConfiguration of \
                 apiserver.config.k8s.io/v1 is",
            ),
            ("podNodeSelectorPluginConfig: {}\n".to_owned(), "PodNodeSelector"),
            (
                format!("{head}plugins:\n- {{name: A, path: missing.yaml}}\n"),
                "missing.yaml of plugin \"A\"",
            ),
        ];
        let file = dir.0.join("config.yaml");
        for (text, expected) in cases {
            std::fs::write(&file, &text).unwrap();
            match Configurations::read(&file) {
                Ok(read) => {
                    assert_eq!(read.names().collect::<Vec<_>>().join(" "), expected, "{text}");
                }
                Err(why) => {
                    assert!(!expected.is_empty() && why.contains(expected), "{text}: {why}");
                    assert!(why.contains("config.yaml"), "{why}");
                }
            }
        }
        let missing = Configurations::read(&dir.0.join("none")).unwrap_err();
        assert!(missing.starts_with("unable to read admission control configuration from"));
    }
}
