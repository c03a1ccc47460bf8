import {
  closeSync,
  cpSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { Code } from '#src/csi/status.ts';
import { messageOf } from '#src/runtime/error-message.ts';
import { DriverStatus } from './driver-status.ts';
import type { AccessType } from './volume-store.ts';

/** The path in a volume's directory that is the volume itself. */
export function pathInside(directory: string, accessType: AccessType): string {
  return join(directory, accessType === 'block' ? 'block.img' : 'contents');
}

/** Creates the contents of a new volume: a directory, or a sparse file of its capacity, with a copy
 * of the source's contents.
 * @throws DriverStatus OutOfRange if no file can be that large */
export function createContents(
  directory: string,
  volume: { readonly accessType: AccessType; readonly capacityBytes: bigint },
  source: string | undefined,
): void {
  if (source !== undefined) copyContents(source, directory);
  const path = pathInside(directory, volume.accessType);
  if (volume.accessType === 'block') growFile(path, volume.capacityBytes);
  else mkdirSync(path, { recursive: true });
}

/** Copies the contents of a volume or snapshot, of either access type, without the metadata. */
export function copyContents(from: string, to: string): void {
  const files = pathInside(from, 'mount');
  if (existsSync(files))
    cpSync(files, pathInside(to, 'mount'), {
      recursive: true,
      verbatimSymlinks: true,
      preserveTimestamps: true,
    });
  const image = pathInside(from, 'block');
  if (existsSync(image)) copySparse(image, pathInside(to, 'block'));
}

function growFile(path: string, bytes: bigint): void {
  const file = openSync(path, 'a');
  try {
    // Never shorter: a volume with a source has at least the source's size.
    if (BigInt(fstatSync(file).size) < bytes) ftruncateSync(file, Number(bytes));
  } catch (cause) {
    throw new DriverStatus(
      Code.OutOfRange,
      `no file of ${bytes} bytes can be created for a block volume: ${messageOf(cause)}`,
    );
  } finally {
    closeSync(file);
  }
}

const CHUNK_BYTES = 1024 * 1024;
const ZEROS = Buffer.alloc(CHUNK_BYTES);

/** Copies an image and keeps its holes, which Node's own copy would fill: a new image is one hole.
 */
function copySparse(from: string, to: string): void {
  const source = openSync(from, 'r');
  const target = openSync(to, 'w');
  try {
    const { size, blocks } = fstatSync(source);
    ftruncateSync(target, size);
    if (blocks === 0) return;
    const chunk = Buffer.alloc(CHUNK_BYTES);
    let length = 0;
    for (let at = 0; at < size; at += length) {
      length = readSync(source, chunk, 0, CHUNK_BYTES, at);
      if (length === 0) break;
      const isHole = chunk.subarray(0, length).equals(ZEROS.subarray(0, length));
      if (!isHole) writeSync(target, chunk, 0, length, at);
    }
  } finally {
    closeSync(source);
    closeSync(target);
  }
}
