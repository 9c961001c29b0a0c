//! Readers of other people's recordings.

mod common;
mod damage;
mod ftrace_text;
mod paged;
mod perf_data;
mod perfetto;
mod read;
mod schedviz;
mod trace_dat;
