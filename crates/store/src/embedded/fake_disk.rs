//! A disk that loses power and fails on command.
//!
//! Processes read and write the page cache. A process crash leaves the page cache as it is, with
//! everything in it that was not synced. A power loss drops it: what was written but not synced may
//! be there afterwards, or not, or in part, in any order; so may files that were created or removed.
//! A failed sync marks the pages as clean, as Linux does: no later sync writes them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile};
use crate::contract::Random;

/// Cloning shares the disk.
#[derive(Clone, Default)]
pub(crate) struct FakeDisk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    fault: Option<Fault>,
    calls: u64,
    read_fault: Option<Fault>,
    reads: u64,
    /// Before which call a copy is taken, and the copy.
    crash_at: Option<u64>,
    crash_image: Option<FakeDisk>,
}

/// Which call fails, and how.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) at_call: u64,
    pub(crate) kind: io::ErrorKind,
    /// Whether all calls from then on fail as well.
    pub(crate) permanent: bool,
}

#[derive(Clone, Default)]
struct FileState {
    /// The page cache: what processes read.
    cached: Vec<u8>,
    /// What is on the disk for certain, without `changes`.
    synced: Vec<u8>,
    /// What was written since, in order.
    changes: Vec<(Change, Writeback)>,
}

/// How far a change has come on its way from the page cache to the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writeback {
    /// It may be on the disk; the next sync makes sure of it.
    Dirty,
    /// A sync failed: it may be on the disk, and no later sync makes sure of it.
    Failed,
    /// It is on the disk.
    Done,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, written) => {
                if bytes.len() < offset + written.len() {
                    bytes.resize(offset + written.len(), 0);
                }
                bytes[*offset..offset + written.len()].copy_from_slice(written);
            }
            Self::SetLen(len) => bytes.resize(*len, 0),
        }
    }
}

impl State {
    /// Counts a call that changes something, and fails it if the fault says so.
    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        if self.crash_at == Some(self.calls) {
            self.crash_image = Some(self.process_crash());
        }
        fail(self.fault, self.calls)
    }

    fn process_crash(&self) -> FakeDisk {
        let state = Self {
            files: self.files.clone(),
            names: self.names.clone(),
            synced_names: self.synced_names.clone(),
            ..Self::default()
        };
        FakeDisk(Arc::new(Mutex::new(state)))
    }

    /// The same for a call that reads.
    fn read(&mut self) -> io::Result<()> {
        self.reads += 1;
        fail(self.read_fault, self.reads)
    }
}

fn fail(fault: Option<Fault>, call: u64) -> io::Result<()> {
    match fault {
        Some(fault) if call == fault.at_call || (fault.permanent && call > fault.at_call) => {
            Err(io::Error::new(fault.kind, "made to fail"))
        }
        _ => Ok(()),
    }
}

impl FakeDisk {
    /// What may be found after a power loss now.
    pub(crate) fn power_loss(&self, random: &mut Random) -> Self {
        let state = self.0.lock();
        let mut names = state.synced_names.clone();
        let all_names = state.names.keys().chain(state.synced_names.keys());
        for name in all_names.cloned().collect::<std::collections::BTreeSet<_>>() {
            if random.below(2) == 0 {
                match state.names.get(&name) {
                    Some(id) => names.insert(name, *id),
                    None => names.remove(&name),
                };
            }
        }
        let files = state.files.iter().map(|file| file.power_loss(random)).collect();
        let state = State { files, synced_names: names.clone(), names, ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// What a process finds that starts after the last one was killed now. What was not synced is
    /// still in the page cache, and still not synced.
    pub(crate) fn process_crash(&self) -> Self {
        self.0.lock().process_crash()
    }

    /// Takes a [`FakeDisk::process_crash`] right before a call, counted from now.
    pub(crate) fn crash_at(&self, call: u64) {
        let mut state = self.0.lock();
        state.calls = 0;
        state.crash_at = Some(call);
    }

    pub(crate) fn crash_image(&self) -> Option<Self> {
        self.0.lock().crash_image.take()
    }

    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        let mut state = self.0.lock();
        state.calls = 0;
        state.fault = fault;
    }

    /// The same for reads, which are counted separately.
    pub(crate) fn set_read_fault(&self, fault: Option<Fault>) {
        let mut state = self.0.lock();
        state.reads = 0;
        state.read_fault = fault;
    }

    pub(crate) fn reads(&self) -> u64 {
        self.0.lock().reads
    }

    pub(crate) fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().names.keys().cloned().collect()
    }

    pub(crate) fn contents(&self, name: &str) -> Vec<u8> {
        let state = self.0.lock();
        state.files[state.names[name]].cached.clone()
    }

    pub(crate) fn set_contents(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.0.lock();
        let id = state.names[name];
        state.files[id] = FileState::durable(bytes);
    }
}

impl FileState {
    fn durable(bytes: Vec<u8>) -> Self {
        Self { cached: bytes.clone(), synced: bytes, changes: Vec::new() }
    }

    fn write(&mut self, change: Change) {
        change.apply(&mut self.cached);
        self.changes.push((change, Writeback::Dirty));
    }

    fn sync(&mut self, outcome: Writeback) {
        for (_, writeback) in &mut self.changes {
            if *writeback == Writeback::Dirty {
                *writeback = outcome;
            }
        }
        // Applies what is certain, up to the first change that is not.
        let uncertain = self.changes.iter().position(|(_, state)| *state != Writeback::Done);
        for (change, _) in self.changes.drain(..uncertain.unwrap_or(self.changes.len())) {
            change.apply(&mut self.synced);
        }
    }

    fn power_loss(&self, random: &mut Random) -> Self {
        let mut bytes = self.synced.clone();
        for (change, writeback) in &self.changes {
            let choice = if *writeback == Writeback::Done { 3 } else { random.below(4) };
            match (choice, change) {
                (0, _) => {}
                (1, Change::Write(offset, written)) => {
                    let kept = random.below(written.len() as u64 + 1) as usize;
                    Change::Write(*offset, written[..kept].to_vec()).apply(&mut bytes);
                }
                (2, Change::Write(offset, written)) => {
                    let lost = random.below(written.len() as u64 + 1) as usize;
                    Change::Write(offset + lost, written[lost..].to_vec()).apply(&mut bytes);
                }
                _ => change.apply(&mut bytes),
            }
        }
        Self::durable(bytes)
    }
}

impl Disk for FakeDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.call()?;
        let id = state.files.len();
        state.files.push(FileState::default());
        state.names.insert(name.to_owned(), id);
        Ok(Box::new(FakeFile { disk: self.clone(), id }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let state = self.0.lock();
        let id = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(FakeFile { disk: self.clone(), id }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        state.synced_names = state.names.clone();
        Ok(())
    }
}

struct FakeFile {
    disk: FakeDisk,
    id: usize,
}

impl FakeFile {
    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let called = state.call();
        let file = &mut state.files[self.id];
        match (&called, change) {
            (Ok(()), change) => file.write(change),
            // A write that fails may have written a part.
            (Err(_), Change::Write(offset, mut bytes)) => {
                bytes.truncate(bytes.len() / 2);
                file.write(Change::Write(offset, bytes));
            }
            (Err(_), Change::SetLen(_)) => {}
        }
        called
    }
}

impl DiskFile for FakeFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().files[self.id].cached.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.0.lock();
        state.read()?;
        let bytes = &state.files[self.id].cached;
        let from = (offset as usize).min(bytes.len());
        let n = buffer.len().min(bytes.len() - from);
        buffer[..n].copy_from_slice(&bytes[from..from + n]);
        Ok(n)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(Change::Write(offset as usize, bytes.to_vec()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Change::SetLen(len as usize))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let called = state.call();
        let outcome = if called.is_ok() { Writeback::Done } else { Writeback::Failed };
        state.files[self.id].sync(outcome);
        called
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "f";

    fn written(disk: &FakeDisk) -> Box<dyn DiskFile> {
        let file = disk.create(NAME).expect("creates");
        file.write_at(b"value", 0).expect("writes");
        file
    }

    /// Whether the file is there as it was written however power is lost.
    fn is_durable(disk: &FakeDisk) -> bool {
        let mut random = Random::new(1);
        let mut images = (0..64).map(|_| disk.power_loss(&mut random));
        images.all(|image| image.names() == [NAME] && image.contents(NAME) == b"value")
    }

    /// A process crash was taken for a sync of everything. No test could see then that a restarted
    /// server served what a power loss takes away.
    #[test]
    fn a_process_crash_makes_nothing_durable() {
        let disk = FakeDisk::default();
        let file = written(&disk);
        let crashed = disk.process_crash();
        assert_eq!(crashed.contents(NAME), b"value", "it is in the page cache");
        crashed.sync().expect("syncs");
        assert!(!is_durable(&crashed), "what is in the file is not synced");
        file.sync().expect("syncs");
        let crashed = disk.process_crash();
        assert!(!is_durable(&crashed), "its name is not synced");
        crashed.sync().expect("syncs");
        assert!(is_durable(&crashed));
    }

    #[test]
    fn after_a_failed_sync_only_what_is_written_again_becomes_durable() {
        let disk = FakeDisk::default();
        let file = written(&disk);
        disk.sync().expect("syncs");
        disk.set_fault(Some(Fault { at_call: 1, kind: io::ErrorKind::Other, permanent: false }));
        file.sync().expect_err("is made to fail");
        file.sync().expect("syncs");
        assert!(!is_durable(&disk));
        file.write_at(b"value", 0).expect("writes");
        file.sync().expect("syncs");
        assert!(is_durable(&disk));
    }
}
