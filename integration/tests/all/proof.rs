//! Durability and consistency under faults: servers are killed, members of etcd fail, disks fill
//! up and keys change while clients write, read and watch; then everything that they saw is checked.
//!
//! `make prove` is the long form.

mod backup;
mod concurrent_clients;
mod encryption;
mod etcd_members;
mod full_disk;
mod kill_loop;
mod linearizability;
mod load;
mod watch_checker;

/// How often something is done: the short form, or what `make prove` asks for.
fn rounds(short: usize) -> usize {
    let times = std::env::var("PINTLE_PROVE").ok().and_then(|text| text.parse().ok());
    short * times.unwrap_or(1)
}
