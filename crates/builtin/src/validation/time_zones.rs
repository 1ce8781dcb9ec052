//! Names of time zones.

use std::sync::LazyLock;

/// Whether the IANA database has a zone of this name. Names are spelt exactly.
pub(crate) fn is_known(name: &str) -> bool {
    DATABASE.get(name).is_ok_and(|zone| zone.iana_name() == Some(name))
}

/// The one built into the program: what a cron job may say must not depend on the machine.
static DATABASE: LazyLock<jiff::tz::TimeZoneDatabase> =
    LazyLock::new(jiff::tz::TimeZoneDatabase::bundled);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_known_by_their_exact_names() {
        for name in ["Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/UTC", "EST5EDT"] {
            assert!(is_known(name), "{name}");
        }
        for name in ["Europe/Atlantis", "europe/berlin", "Nowhere", ""] {
            assert!(!is_known(name), "{name}");
        }
    }
}
