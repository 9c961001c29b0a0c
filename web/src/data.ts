// Data in the page: base64, gzip, columns of varints.

/** The bytes of an element that holds gzip as base64. */
export async function unpack(id: string): Promise<Uint8Array | undefined> {
  const text = document.getElementById(id)?.textContent;
  if (!text) return undefined;
  // A plain loop: several times faster than Uint8Array.from with a function.
  const binary = atob(text);
  const packed = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) packed[i] = binary.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Reads varints one after the other. Values beyond 2^53 lose their low digits. */
export class Reader {
  private position = 0;

  constructor(private readonly bytes: Uint8Array) {}

  get done(): boolean {
    return this.position >= this.bytes.length;
  }

  next(): number {
    let byte = this.bytes[this.position++];
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    let factor = 128;
    do {
      byte = this.bytes[this.position++];
      value += (byte & 0x7f) * factor;
      factor *= 128;
    } while (byte >= 0x80);
    return value;
  }

  nextSigned(): number {
    const value = this.next();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }
}

/** Saves a text or bytes under a name. */
export function save(name: string, content: BlobPart, type: string): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
