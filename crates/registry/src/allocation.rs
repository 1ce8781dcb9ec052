//! What an object takes from a limited supply when it is written: a service its cluster IPs and node
//! ports.

use std::sync::Arc;

use admission::BoxFuture;
use meta::{ApiError, Str, Value};
use store::{Expect, StoreError};

use crate::{storage::Storage, storage_codec::EncodedObject};

/// Allocates from a limited supply. Called between admission and validation, with objects of the
/// served version.
pub trait Allocator: Send + Sync + 'static {
    /// Takes what a new object needs and writes it into the object.
    fn for_create<'a>(
        &'a self,
        object: &'a mut Value,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Allocation, ApiError>>;

    /// Takes what is new; what is no longer needed is released when the change is committed.
    fn for_update<'a>(
        &'a self,
        object: &'a mut Value,
        old: &'a Value,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Allocation, ApiError>>;

    /// The object is deleted: releases all it had.
    fn release<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, ()>;
}

/// What was taken for one write that has not happened yet. Exactly one of the methods is called.
pub trait Reservation: Send + 'static {
    /// The object was written: what was taken stays taken, what it replaces is released.
    fn commit(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// Nothing was written: what was taken is released.
    fn release(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// It is unknown whether the object was written: nothing is released, since an object may hold
    /// it. A periodic repair releases what no object holds.
    fn abandon(self: Box<Self>);
}

/// A reservation, or nothing for kinds that take nothing. Dropped, it is released: the request was
/// cancelled before its write was handed to the store.
#[derive(Default)]
pub struct Allocation(Option<Box<dyn Reservation>>);

impl Allocation {
    pub fn new(reservation: impl Reservation) -> Self {
        Self(Some(Box::new(reservation)))
    }

    /// Returns when everything is released, so that a client that got an error finds it free.
    pub(crate) async fn release(mut self) {
        if let Some(reservation) = self.0.take() {
            reservation.release().await;
        }
    }

    /// Writes the object that the reservation is for, and resolves the reservation by the outcome.
    ///
    /// The write goes on in a task of its own when the request is cancelled: otherwise the outcome
    /// would be lost, and addresses of a written object could be handed out a second time.
    pub(crate) async fn write(
        &mut self,
        storage: &Arc<Storage>,
        key: Str,
        expect: Expect,
        object: &EncodedObject,
    ) -> Result<u64, StoreError> {
        let Some(reservation) = self.0.take() else {
            return storage.write(key, expect, Some(object)).await;
        };
        let in_flight = InFlight(Some(reservation));
        let (storage, object) = (storage.clone(), object.clone());
        let write = tokio::spawn(async move {
            let written = storage.write(key, expect, Some(&object)).await;
            in_flight.resolve(&written).await;
            written
        });
        write.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let (Some(reservation), Ok(runtime)) =
            (self.0.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(reservation.release());
        }
    }
}

/// The reservation of a write that the store has been asked for. Dropped (the write panicked, the
/// runtime shuts down), it is abandoned.
struct InFlight(Option<Box<dyn Reservation>>);

impl InFlight {
    async fn resolve(mut self, written: &Result<u64, StoreError>) {
        let Some(reservation) = self.0.take() else { return };
        match written {
            Ok(_) => reservation.commit().await,
            Err(error) if is_refused(error) => reservation.release().await,
            Err(_) => reservation.abandon(),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(reservation) = self.0.take() {
            reservation.abandon();
        }
    }
}

/// Whether an error of a write says that nothing was written. An unavailable store may have
/// written all the same.
fn is_refused(error: &StoreError) -> bool {
    match error {
        StoreError::Conflict { .. }
        | StoreError::TooLarge { .. }
        | StoreError::Unreadable { .. }
        | StoreError::Full(_) => true,
        StoreError::Unavailable(_)
        | StoreError::Corrupt(_)
        | StoreError::Compacted { .. }
        | StoreError::Future { .. }
        | StoreError::TooLargeRevision { .. }
        | StoreError::Expired { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::sync::Notify;

    use super::*;
    use crate::testing::{TestServer, WriteFault};

    /// Gives every object a number, and notes what becomes of it.
    #[derive(Clone, Default)]
    struct Numbers {
        outcomes: Arc<Mutex<Vec<&'static str>>>,
        resolved: Arc<Notify>,
    }

    impl Numbers {
        fn outcomes(&self) -> Vec<&'static str> {
            self.outcomes.lock().clone()
        }

        fn note(&self, outcome: &'static str) {
            self.outcomes.lock().push(outcome);
            self.resolved.notify_one();
        }

        /// Waits for the first outcome.
        async fn check_resolved(&self, expected: &str) {
            let resolved = tokio::time::timeout(Duration::from_secs(10), self.resolved.notified());
            resolved.await.expect("it is resolved within seconds");
            assert_eq!(self.outcomes(), [expected]);
        }

        fn reserve(&self, object: &mut Value) -> BoxFuture<'_, Result<Allocation, ApiError>> {
            object.set_at(&["metadata", "labels", "number"], "1");
            Box::pin(std::future::ready(Ok(Allocation::new(self.clone()))))
        }

        fn resolved(self: Box<Self>, outcome: &'static str) -> BoxFuture<'static, ()> {
            Box::pin(async move { self.note(outcome) })
        }
    }

    impl Allocator for Numbers {
        fn for_create<'a>(
            &'a self,
            object: &'a mut Value,
            _: bool,
        ) -> BoxFuture<'a, Result<Allocation, ApiError>> {
            self.reserve(object)
        }

        fn for_update<'a>(
            &'a self,
            object: &'a mut Value,
            _: &'a Value,
            _: bool,
        ) -> BoxFuture<'a, Result<Allocation, ApiError>> {
            self.reserve(object)
        }

        fn release<'a>(&'a self, _: &'a Value) -> BoxFuture<'a, ()> {
            Box::pin(async move { self.note("deleted") })
        }
    }

    impl Reservation for Numbers {
        fn commit(self: Box<Self>) -> BoxFuture<'static, ()> {
            self.resolved("committed")
        }

        fn release(self: Box<Self>) -> BoxFuture<'static, ()> {
            self.resolved("released")
        }

        fn abandon(self: Box<Self>) {
            self.note("abandoned");
        }
    }

    async fn server() -> (TestServer, Numbers) {
        let numbers = Numbers::default();
        let allocator: Arc<dyn Allocator> = Arc::new(numbers.clone());
        let server = TestServer::start_with(|kind| kind.with_allocator(Some(allocator))).await;
        (server, numbers)
    }

    const CREATE: &str = "POST /v1/namespaces/ns/widgets";
    const WIDGET: &str = "{metadata: {name: a}}";

    #[tokio::test]
    async fn what_was_taken_goes_the_way_of_the_write() {
        let (server, numbers) = server().await;
        let put = "PUT /v1/namespaces/ns/widgets/a";
        let cases = [
            (CREATE, WIDGET, 201, "committed"),
            (CREATE, WIDGET, 409, "released"),
            (CREATE, "{metadata: {name: b}, spec: {replicas: 101}}", 422, "released"),
            (put, "{metadata: {name: a}, spec: {replicas: 1}}", 200, "committed"),
            (put, "{metadata: {name: a}, spec: {replicas: 101}}", 422, "released"),
            ("DELETE /v1/namespaces/ns/widgets/a", "", 200, "deleted"),
        ];
        for (at, (line, body, code, outcome)) in cases.into_iter().enumerate() {
            assert_eq!(server.send(line, body).await.code, code, "{line} {body}");
            let outcomes = numbers.outcomes();
            assert_eq!((outcomes.len(), outcomes[at]), (at + 1, outcome), "{line} {body}");
        }
    }

    #[tokio::test]
    async fn a_store_that_refuses_a_write_releases_what_was_taken() {
        let (server, numbers) = server().await;
        server.backend.fail_next_write(WriteFault::Full);
        server.check(CREATE, WIDGET, "500 : no space left").await;
        assert_eq!(numbers.outcomes(), ["released"]);
    }

    /// What it had taken was released, and could be handed out again, although the object was there.
    #[tokio::test]
    async fn a_write_with_an_unknown_outcome_keeps_what_was_taken() {
        let (server, numbers) = server().await;
        let put = "PUT /v1/namespaces/ns/widgets/a";
        let cases = [
            (CREATE, WIDGET, "200 metadata.labels.number=1 spec.replicas="),
            (
                put,
                "{metadata: {name: a}, spec: {replicas: 2}}",
                "200 metadata.labels.number=1 spec.replicas=2",
            ),
        ];
        for (at, (line, body, written)) in cases.into_iter().enumerate() {
            server.backend.fail_next_write(WriteFault::AnswerLost);
            server.check(line, body, "500 : request timed out").await;
            assert_eq!(numbers.outcomes(), vec!["abandoned"; at + 1], "{line} {body}");
            server.check("GET /v1/namespaces/ns/widgets/a", "", written).await;
        }
    }

    #[tokio::test]
    async fn a_request_that_is_cancelled_during_its_write_keeps_what_was_written() {
        let (server, numbers) = server().await;
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let fault = WriteFault::Delayed { begun: begun.clone(), go_on: go_on.clone() };
        server.backend.fail_next_write(fault);
        tokio::select! {
            answer = server.send(CREATE, WIDGET) => panic!("{} before the write", answer.code),
            () = begun.notified() => {}
        }
        assert!(numbers.outcomes().is_empty());
        go_on.notify_one();
        numbers.check_resolved("committed").await;
        server.check("GET /v1/namespaces/ns/widgets/a", "", "200 metadata.labels.number=1").await;
    }

    /// The write panics, or the runtime shuts down.
    #[tokio::test]
    async fn a_write_that_is_dropped_keeps_what_was_taken() {
        let numbers = Numbers::default();
        drop(InFlight(Some(Box::new(numbers.clone()))));
        numbers.check_resolved("abandoned").await;
    }

    #[tokio::test]
    async fn a_request_that_is_cancelled_before_its_write_releases_what_was_taken() {
        let numbers = Numbers::default();
        drop(numbers.reserve(&mut Value::object()).await.unwrap());
        numbers.check_resolved("released").await;
    }
}
