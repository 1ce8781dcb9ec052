//! SPDY/3.1 as Kubernetes speaks it: over a connection that HTTP/1.1 upgraded, with streams that the
//! client opens and without flow control, which spdystream (Go) has never had.
//!
//! No crate for SPDY is maintained, and little of it is needed, so it is own code. Everything here is
//! bounded: control frames are read up to [`CONTROL_FRAME_BYTES_MAX`], header blocks up to a size and a
//! count before memory is taken for them, and data is passed on in the pieces in which it arrives,
//! whatever length its frame claims.

mod dictionary;
mod frame;
mod header_block;
mod session;

pub use self::{
    frame::{CONTROL_FRAME_BYTES_MAX, Decoder, Encoder, Frame, Reset, SpdyError, decode_frames},
    session::{PING_PERIOD, Session, SessionError, SessionReader, SessionWriter, StreamId},
};

/// What a connection is upgraded to.
pub const UPGRADE: &str = "SPDY/3.1";
