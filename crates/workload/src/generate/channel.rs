//! How many bytes a pipe or a Unix socket holds, which depends on the size of the messages.
//!
//! Pipes: 16 pages; a write is added to the last page if it fits there, so short messages leave a rest in each page
//! (Linux `pipe_write`). Sockets: 212 992 bytes of buffers by default (`net.core.wmem_default`), each message counted
//! with its buffer and bookkeeping (`skb` true size). Seen on Linux 6.18, messages until the writer would block:
//! pipe 65 536 × 1, 640 × 100, 128 × 512, 16 × 4096; socket 278 × 1, 278 × 100, 167 × 512, 93 × 1024, 44 × 4096 bytes.

use crate::ChannelKind;

/// Bytes of a pipe that nobody changed.
pub const DEFAULT_CHANNEL_BYTES: u64 = 16 * PAGE;

const PAGE: u64 = 4096;
const SOCKET_BUFFER_BYTES: u64 = 212_992;

/// Bytes a channel of the kind holds when all messages have the given size.
pub fn channel_capacity(kind: ChannelKind, message_bytes: u32) -> u64 {
    let message = u64::from(message_bytes.max(1));
    match kind {
        ChannelKind::Pipe if message >= PAGE => DEFAULT_CHANNEL_BYTES,
        ChannelKind::Pipe => 16 * (PAGE / message) * message,
        // A writer goes on while less than the limit is used, so the last message may exceed it.
        ChannelKind::Socket => SOCKET_BUFFER_BYTES.div_ceil(socket_buffer_bytes(message)) * message,
    }
}

/// What a message of a Unix socket counts: up to 3776 bytes, the size class of data and `skb_shared_info` (320 bytes)
/// plus `sk_buff` (256); beyond, whole pages plus 768.
fn socket_buffer_bytes(message: u64) -> u64 {
    if message + 320 <= PAGE { 256 + (message + 320).next_power_of_two() } else { 768 + message.next_multiple_of(PAGE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_hold_as_many_messages_as_seen_on_linux() {
        let messages = |kind, bytes: u32| channel_capacity(kind, bytes) / u64::from(bytes);
        for (bytes, count) in [(1, 65_536), (8, 8_192), (100, 640), (512, 128), (1024, 64), (4096, 16)] {
            assert_eq!(messages(ChannelKind::Pipe, bytes), count, "pipe, {bytes} bytes");
        }
        for (bytes, count) in [(1, 278), (8, 278), (100, 278), (512, 167), (1024, 93), (4096, 44)] {
            assert_eq!(messages(ChannelKind::Socket, bytes), count, "socket, {bytes} bytes");
        }
    }
}
