//! `/debug/api_priority_and_fairness/*`: tables as text. Compat: columns, spelling and alignment are
//! kube-apiserver's.

use meta::{
    Str,
    time::{Duration, Time},
};

use crate::queue_set::{Dump, RequestDump};
use crate::seat_seconds::Nanos;

/// A priority level.
pub(crate) struct LevelDump {
    pub(crate) name: Str,
    pub(crate) is_quiescing: bool,
    pub(crate) state: Dump,
    pub(crate) requests: Vec<RequestDump>,
}

pub(crate) fn priority_levels(levels: &[LevelDump]) -> String {
    let mut rows = vec![row(&[
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ])];
    for level in levels {
        let Dump { queues, is_idle, waiting, executing, totals } = &level.state;
        let active = queues.iter().filter(|queue| queue.waiting > 0).count();
        rows.push(vec![
            level.name.to_string(),
            active.to_string(),
            is_idle.to_string(),
            level.is_quiescing.to_string(),
            waiting.to_string(),
            executing.to_string(),
            totals.dispatched.to_string(),
            totals.rejected.to_string(),
            totals.timed_out.to_string(),
            totals.cancelled.to_string(),
        ]);
    }
    table(&rows)
}

pub(crate) fn queues(levels: &[LevelDump]) -> String {
    let mut rows = vec![row(&[
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ])];
    for level in levels {
        for (index, queue) in level.state.queues.iter().enumerate() {
            rows.push(vec![
                level.name.to_string(),
                index.to_string(),
                queue.waiting.to_string(),
                queue.executing.to_string(),
                queue.seats_in_use.to_string(),
                queue.next_dispatch_r.to_string(),
                queue.initial_seats.to_string(),
                queue.max_seats.to_string(),
                queue.total_work.to_string(),
            ]);
        }
    }
    table(&rows)
}

/// `started` is the time at which the clock of the requests was 0.
pub(crate) fn requests(levels: &[LevelDump], details: bool, started: Time) -> String {
    let mut header = row(&[
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ]);
    if details {
        header.extend(row(&[
            "UserName",
            "Verb",
            "APIPath",
            "Namespace",
            "Name",
            "APIVersion",
            "Resource",
            "SubResource",
        ]));
    }
    let mut rows = vec![header];
    for level in levels {
        for request in &level.requests {
            let estimate = &request.estimate;
            let mut cells = vec![
                level.name.to_string(),
                request.schema.to_string(),
                request.queue.to_string(),
                request.place.to_string(),
                request.distinguisher.to_string(),
                instant(started, Some(request.arrival)),
                estimate.initial_seats.to_string(),
                estimate.final_seats.to_string(),
                duration(estimate.additional_latency.as_nanos() as u64).to_string(),
                instant(started, request.start),
            ];
            if details {
                let group_version = match request.group.as_str() {
                    "" => request.version.to_string(),
                    group => format!("{group}/{}", request.version),
                };
                cells.extend([
                    request.user.to_string(),
                    request.verb.to_string(),
                    request.path.clone(),
                    request.namespace.to_string(),
                    request.name.to_string(),
                    group_version,
                    request.resource.to_string(),
                    request.subresource.to_string(),
                ]);
            }
            rows.push(cells);
        }
    }
    table(&rows)
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|&cell| cell.to_owned()).collect()
}

/// Go's `tabwriter` with these settings: cells end with a comma, and are as wide as the widest of
/// their column and a space; the last one is not padded.
fn table(rows: &[Vec<String>]) -> String {
    const WIDTH_MIN: usize = 8;
    let columns = rows.first().map_or(0, Vec::len);
    // Paths and user names are clients' texts; a line break would forge a row.
    let cell = |text: &str| -> String {
        text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
    };
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()).collect();
    let widths: Vec<usize> = (0..columns)
        .map(|at| {
            let widest = rows.iter().map(|row| row[at].chars().count() + 2).max();
            widest.unwrap_or_default().max(WIDTH_MIN)
        })
        .collect();
    let mut text = String::new();
    for row in &rows {
        for (at, cell) in row.iter().enumerate() {
            if at + 1 == columns {
                text.push_str(cell);
            } else {
                let padding = widths[at] - cell.chars().count() - 1;
                text.push_str(cell);
                text.push(',');
                text.extend(std::iter::repeat_n(' ', padding));
            }
        }
        text.push('\n');
    }
    text
}

/// RFC 3339 with as many decimals as needed; Go's zero time for None.
fn instant(started: Time, at: Option<Nanos>) -> String {
    let Some(at) = at else { return "0001-01-01T00:00:00Z".to_owned() };
    let time = started.plus(duration(at));
    let seconds = time.to_rfc3339();
    if time.nanos() == 0 {
        return seconds;
    }
    let decimals = format!("{:09}", time.nanos());
    format!("{}.{}Z", seconds.trim_end_matches('Z'), decimals.trim_end_matches('0'))
}

fn duration(nanos: Nanos) -> Duration {
    Duration { nanos: i64::try_from(nanos).unwrap_or(i64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_as_by_gos_tabwriter() {
        let rows = [row(&["Name", "PendingRequests", "Last"]), row(&["a", "1", "x\ny"])];
        assert_eq!(
            table(&rows),
            "Name,   PendingRequests, Last\na,      1,               x\u{fffd}y\n"
        );
    }

    #[test]
    fn times_have_the_decimals_they_need() {
        let started = Time::from_unix(0, 0);
        let cases = [
            (None, "0001-01-01T00:00:00Z"),
            (Some(1_000_000_000), "1970-01-01T00:00:01Z"),
            (Some(1_020_000_000), "1970-01-01T00:00:01.02Z"),
            (Some(1), "1970-01-01T00:00:00.000000001Z"),
        ];
        for (at, expected) in cases {
            assert_eq!(instant(started, at), expected);
        }
    }
}
