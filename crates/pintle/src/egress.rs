//! `--egress-selector-config-file`: which way connections leave the server.

use ::egress::{EgressSelector, EgressType};

use crate::options::Options;

/// The ways of the configuration; direct ones without a file.
pub(crate) fn selector(options: &Options) -> Result<EgressSelector, String> {
    let Some(file) = &options.egress_selector_config else { return Ok(EgressSelector::default()) };
    let named = |why: String| format!("--egress-selector-config-file {}: {why}", file.display());
    let selector = EgressSelector::read(file).map_err(|error| named(error.to_string()))?;
    for (egress, name) in [(EgressType::Etcd, "etcd"), (EgressType::ControlPlane, "controlplane")] {
        if selector.proxy(egress).is_some() {
            return Err(named(format!("{name} through a proxy is not available in Pintle yet")));
        }
    }
    Ok(selector)
}
