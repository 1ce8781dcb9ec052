//! Which of the feature gates that kinds look at are on.

pub use crate::kind_facts::FeatureGate;

/// Given to the strategies of kinds that depend on a gate when the server starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    /// One bit per gate, by its place in [`FeatureGate::ALL`].
    enabled: u32,
}

const _: () = assert!(FeatureGate::ALL.len() <= u32::BITS as usize);

impl FeatureGates {
    /// Asks about each gate by its name.
    pub fn new(is_enabled: impl Fn(&str) -> bool) -> Self {
        let enabled = FeatureGate::ALL.iter().filter(|gate| is_enabled(gate.name()));
        Self { enabled: enabled.fold(0, |bits, gate| bits | bit(*gate)) }
    }

    pub fn enabled(self, gate: FeatureGate) -> bool {
        self.enabled & bit(gate) != 0
    }
}

fn bit(gate: FeatureGate) -> u32 {
    1 << gate as u32
}
