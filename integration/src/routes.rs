//! Where an egress proxy of a test leads: only there, and it notes what it was asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
pub(crate) struct Routes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// From an address and a port to a port on loopback.
    ports: HashMap<String, u16>,
    /// What was asked for.
    targets: Vec<String>,
}

impl Routes {
    pub(crate) fn add(&self, address: &str, port: u16) {
        self.0.lock().expect("no panics").ports.insert(address.to_owned(), port);
    }

    /// The port on loopback for what a client asks for.
    pub(crate) fn find(&self, target: &str) -> Option<u16> {
        let mut state = self.0.lock().expect("no panics");
        state.targets.push(target.to_owned());
        state.ports.get(target).copied()
    }

    pub(crate) fn targets(&self) -> Vec<String> {
        self.0.lock().expect("no panics").targets.clone()
    }
}
