//! SPDY sessions: header blocks that inflate to much, streams without end, frames with wrong lengths, and kubelets
//! that stall while their clients leave.

use std::io::Write as _;
use std::time::Duration;

use integration::{CraftedServer, NodeNetwork, Then, eventually};

use super::streams::{
    EXEC, SPDY, UPGRADED, WEBSOCKET, code, control, fill_buffers, head, rest, upgrade_of,
};
use super::{Case, Client, NAMESPACE, Outcome, SILENCE, called, open, sized};

const SYN_STREAM: u8 = 1;
const SYN_REPLY: u8 = 2;
const HEADERS: u8 = 8;

pub(super) fn cases(network: &NodeNetwork) -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, (name, frames)) in sessions().into_iter().enumerate() {
        let (node, address) = (format!("spdy-{number}"), format!("192.0.2.{}", 160 + number));
        let answer = [UPGRADED, &frames].concat();
        let kubelet = network.add_crafted_node(&node, &address, answer);
        network.add_pod(NAMESPACE, &node, &node, &["app"]);
        cases.push(Case::new(name, Client::NamespaceAdmin, &[101], move |http| {
            let _ = &kubelet;
            let mut open: Vec<_> =
                (0..10).map(|_| upgrade_of(http, &node, EXEC, WEBSOCKET)).collect();
            let (code, mut last) = open.pop().expect("there are some");
            Outcome { code, bytes: rest(&mut last) }
        }));
    }
    cases.extend(clients(network));
    cases.extend(clients_that_leave(network));
    cases.extend(http2_kubelets(network));
    cases
}

/// What a kubelet sends in a session.
fn sessions() -> Vec<(&'static str, Vec<u8>)> {
    // The streams for errors, input and output are accepted.
    let accepted = || {
        let mut blocks = Blocks::default();
        let replies: Vec<u8> = [1, 3, 5]
            .into_iter()
            .flat_map(|stream| control(SYN_REPLY, &[&id(stream)[..], &blocks.empty()].concat()))
            .collect();
        (replies, blocks)
    };
    let blocks_of = |kind: u8, fixed: &[u8], count: usize, bytes: usize| {
        let (mut sent, mut blocks) = accepted();
        for _ in 0..count {
            sent.extend(control(kind, &[fixed, &blocks.long(bytes)].concat()));
        }
        sent
    };
    let wrong = |frames: &[&[u8]]| {
        let (mut sent, _) = accepted();
        sent.extend(frames.iter().copied().flatten());
        sent
    };
    let stream_of_its_own = [0, 0, 0, 2, 0, 0, 0, 0, 0, 0];
    vec![
        ("kubelet: 20 000 header blocks that inflate to 60 KB", {
            blocks_of(HEADERS, &id(1), sized(20_000), 60_000)
        }),
        ("kubelet: a header block that inflates to 2 MB", {
            blocks_of(HEADERS, &id(1), 1, 2_000_000)
        }),
        ("kubelet: 100 000 streams of its own", {
            blocks_of(SYN_STREAM, &stream_of_its_own, sized(100_000), 1)
        }),
        ("kubelet: 100 000 replies", blocks_of(SYN_REPLY, &id(5), sized(100_000), 1)),
        ("kubelet: a header block without a name", {
            let (mut sent, mut blocks) = accepted();
            let block = blocks.of(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff], 0);
            sent.extend(control(HEADERS, &[&id(1)[..], &block].concat()));
            sent
        }),
        ("kubelet: a reset of three bytes", wrong(&[&control(3, &[0, 0, 0])])),
        ("kubelet: a reply of two bytes", wrong(&[&control(SYN_REPLY, &[0, 0])])),
        ("kubelet: an empty ping", wrong(&[&control(6, &[])])),
        ("kubelet: settings that claim 2^32 values", wrong(&[&control(4, &[0xff; 4])])),
        ("kubelet: a control frame that claims 16 MB", {
            wrong(&[&[0x80, 3, 0, 8, 0, 0xff, 0xff, 0xff], &vec![0; sized(3_000_000)]])
        }),
        ("kubelet: a frame of data that claims 16 MB and stops", {
            wrong(&[&[0, 0, 0, 5, 0, 0xff, 0xff, 0xff], b"x"])
        }),
    ]
}

fn id(stream: u8) -> [u8; 4] {
    [0, 0, 0, stream]
}

/// Clients that speak SPDY to a kubelet: the server passes their bytes on.
fn clients(network: &NodeNetwork) -> Vec<Case> {
    let kubelet = network.add_crafted_node("spdy-client", "192.0.2.190", UPGRADED.to_vec());
    network.add_pod(NAMESPACE, "spdy-client", "spdy-client", &["app"]);
    let kubelet = std::rc::Rc::new(kubelet);
    let case = |name: &'static str, subresource: &'static str, bytes: fn() -> Vec<u8>| {
        let kubelet = kubelet.clone();
        Case::new(name, Client::NamespaceAdmin, &[101], move |http| {
            let _ = &kubelet;
            let (code, mut stream) = upgrade_of(http, "spdy-client", subresource, SPDY);
            let _ = stream.write_all(&bytes());
            Outcome { code, bytes: rest(&mut stream) }
        })
    };
    let syn_streams = || {
        let mut blocks = Blocks::default();
        let frame = |blocks: &mut Blocks| {
            control(SYN_STREAM, &[&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &blocks.empty()].concat())
        };
        let first = frame(&mut blocks);
        [first, frame(&mut blocks).repeat(sized(100_000))].concat()
    };
    vec![
        case("exec: 100 000 SYN_STREAMs", EXEC, syn_streams),
        case("port-forward: 100 000 SYN_STREAMs", "portforward", syn_streams),
        case("attach: header blocks that inflate to 1 GB", "attach?stdin=1&stdout=1", || {
            let mut blocks = Blocks::default();
            let mut sent = Vec::new();
            for _ in 0..sized(16_000) {
                sent.extend(control(HEADERS, &[&id(1)[..], &blocks.long(60_000)].concat()));
            }
            sent
        }),
    ]
}

/// Clients that leave while a kubelet stalls: nothing is kept for them, neither here nor at the kubelet.
fn clients_that_leave(network: &NodeNetwork) -> Vec<Case> {
    let half_a_line = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab".to_vec();
    let kubelets = [
        ("kubelet: 50 clients leave before it answers exec", EXEC, WEBSOCKET, Vec::new()),
        ("kubelet: 50 clients leave before it opens streams", EXEC, WEBSOCKET, UPGRADED.to_vec()),
        ("kubelet: 50 clients leave before it upgrades to SPDY", EXEC, SPDY, Vec::new()),
        ("kubelet: 50 clients leave while SPDY stalls", EXEC, SPDY, UPGRADED.to_vec()),
        ("kubelet: 50 clients leave before it forwards ports", "portforward", TUNNEL, Vec::new()),
        ("kubelet: 50 clients leave before their logs", "log", "", Vec::new()),
        ("kubelet: 50 clients leave in the middle of logs", "log?follow=1", "", half_a_line),
    ];
    let mut cases = Vec::new();
    for (number, (name, subresource, headers, answer)) in kubelets.into_iter().enumerate() {
        let (node, address) = (format!("stall-{number}"), format!("192.0.2.{}", 200 + number));
        let answers = !answer.is_empty();
        let kubelet = network.add_crafted_node_that(&node, &address, answer, Then::Listen);
        network.add_pod(NAMESPACE, &node, &node, &["app"]);
        cases.push(Case::new(name, Client::NamespaceAdmin, &[0, 101, 200], move |http| {
            let head = head(http, &node, subresource, headers);
            let mut open: Vec<_> = (0..50).map(|_| open(http, &head)).collect();
            let mut seen = 0;
            if answers || headers == WEBSOCKET {
                for stream in &mut open {
                    seen = code(stream);
                }
            }
            // The kubelet has got all of them.
            eventually("all sessions have reached the kubelet", || {
                (kubelet.asked() >= 50).then_some(())
            });
            drop(open);
            eventually("the kubelet's connections have ended", || {
                (kubelet.received().len() >= 50).then_some(())
            });
            Outcome::code(seen)
        }));
    }
    cases
}

const TUNNEL: &str = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
     Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io\r\n";

/// Kubelets that speak HTTP/2, and send heads or pings without an end.
fn http2_kubelets(network: &NodeNetwork) -> Vec<Case> {
    let kubelets = [
        ("kubelet: informational responses without end over HTTP/2", called::informational()),
        ("kubelet: pings without end over HTTP/2", called::pings()),
    ];
    let mut cases = Vec::new();
    for (number, (name, behaviour)) in kubelets.into_iter().enumerate() {
        let (node, address) = (format!("http2-{number}"), format!("192.0.2.{}", 220 + number));
        let kubelet = CraftedServer::start(&network.serving_pair(&address), behaviour);
        network.add_node_at(&node, &address, kubelet.port());
        network.add_pod(NAMESPACE, &node, &node, &["app"]);
        cases.push(Case::new(name, Client::NamespaceAdmin, &[500, 502, 503], move |http| {
            let head = head(http, &node, "log", "");
            let mut open: Vec<_> = (0..20).map(|_| open(http, &head)).collect();
            fill_buffers();
            let mut last = open.pop().expect("there are some");
            last.sock.set_read_timeout(Some(SILENCE + Duration::from_secs(20))).expect("a socket");
            let code = code(&mut last);
            assert!(kubelet.requests() > 0, "the kubelet was asked");
            Outcome { code, bytes: rest(&mut last) }
        }));
    }
    cases
}

/// Header blocks of one direction, compressed by hand: runs of one byte, 258 times the same in 13 bits.
#[derive(Default)]
struct Blocks {
    begun: bool,
}

impl Blocks {
    /// Without headers.
    fn empty(&mut self) -> Vec<u8> {
        self.of(&[0; 4], 0)
    }

    /// One header, with a value of at least this length.
    fn long(&mut self, bytes: usize) -> Vec<u8> {
        let runs = bytes.div_ceil(258);
        let length = (1 + runs * 258) as u32;
        let begin = [&[0, 0, 0, 1, 0, 0, 0, 1, b'a'][..], &length.to_be_bytes(), b"x"].concat();
        self.of(&begin, runs)
    }

    /// These bytes, and their last one so many times 258 times more.
    fn of(&mut self, bytes: &[u8], runs: usize) -> Vec<u8> {
        let mut bits = Bits::default();
        if !self.begun {
            self.begun = true;
            bits.out.extend([0x78, 0x9c]);
        }
        // Not the last block, with the fixed codes.
        bits.low_first(0b010, 3);
        for byte in bytes {
            match *byte {
                literal @ 0..=143 => bits.high_first(0x30 + u32::from(literal), 8),
                literal => bits.high_first(0x190 + u32::from(literal) - 144, 9),
            }
        }
        for _ in 0..runs {
            // Length 258 (code 285), distance 1 (code 0).
            bits.high_first(0b1100_0101, 8);
            bits.high_first(0, 5);
        }
        // The end of the block, and an empty one that is stored: all before it is whole bytes.
        bits.high_first(0, 7);
        bits.low_first(0, 3);
        bits.align();
        bits.out.extend([0, 0, 0xff, 0xff]);
        bits.out
    }
}

#[derive(Default)]
struct Bits {
    out: Vec<u8>,
    used: usize,
}

impl Bits {
    fn bit(&mut self, bit: u32) {
        if self.used == 0 {
            self.out.push(0);
        }
        let last = self.out.last_mut().expect("a byte was begun");
        *last |= (bit as u8 & 1) << self.used;
        self.used = (self.used + 1) % 8;
    }

    fn low_first(&mut self, value: u32, bits: u32) {
        (0..bits).for_each(|at| self.bit(value >> at));
    }

    /// Huffman codes.
    fn high_first(&mut self, code: u32, bits: u32) {
        (0..bits).rev().for_each(|at| self.bit(code >> at));
    }

    fn align(&mut self) {
        self.used = 0;
    }
}
