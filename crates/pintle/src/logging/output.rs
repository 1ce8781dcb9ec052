//! Where lines go: one stream, or errors and the rest apart, the rest perhaps buffered.

use std::{
    io::{BufWriter, Write},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

pub(super) type Stream = Box<dyn Write + Send>;

pub(super) struct Output {
    errors: Mutex<Stream>,
    /// None: there is one stream.
    info: Option<Mutex<BufWriter<Stream>>>,
}

/// `--log-*-info-buffer-size` beyond this is cut: what is in the buffer is lost when the process is killed.
const INFO_BUFFER_BYTES_MAX: usize = 64 << 20;

impl Output {
    pub(super) fn single(stream: Stream) -> Self {
        Self { errors: Mutex::new(stream), info: None }
    }

    /// With a buffer of 0 bytes each line is written at once.
    pub(super) fn split(info: Stream, errors: Stream, buffer_bytes: usize) -> Self {
        let info = BufWriter::with_capacity(buffer_bytes.min(INFO_BUFFER_BYTES_MAX), info);
        Self { errors: Mutex::new(errors), info: Some(Mutex::new(info)) }
    }

    /// One write per line, so that lines of several threads do not interleave. A full disk or a closed
    /// pipe must not stop the server.
    pub(super) fn write(&self, is_info: bool, line: &str) {
        let _ = match &self.info {
            Some(info) if is_info => {
                info.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())
            }
            _ => {
                let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
                errors.write_all(line.as_bytes())
            }
        };
    }

    pub(super) fn flush(&self) {
        if let Some(info) = &self.info {
            let _ = info.lock().unwrap_or_else(PoisonError::into_inner).flush();
        }
    }

    /// Flushes from a thread of its own, for as long as the process lives.
    pub(super) fn flush_every(self: &Arc<Self>, interval: Duration) {
        if self.info.is_none() {
            return;
        }
        let output = self.clone();
        let flushing = move || {
            loop {
                std::thread::park_timeout(interval);
                output.flush();
            }
        };
        // Without it lines are written when the buffer is full, and at the end.
        let _ = std::thread::Builder::new().name("log-flush".to_owned()).spawn(flushing);
    }
}
