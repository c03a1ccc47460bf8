import { excerpt, isFields, parseJson } from '../runtime/json.ts';
import { undecodableError } from './kube-error.ts';
import { JsonNesting, OPEN_BRACE, parseObject } from './object-json.ts';

/** What a page of a list says besides its items. */
export interface PageInfo {
  readonly resourceVersion: string;
  /** Absent on the last page. */
  readonly continueToken?: string;
}

/** Stands in the frame for an item that was cut out: the digit 0. */
const PLACEHOLDER = Buffer.of(0x30);
const ITEMS_BEGIN = /[{,]\s*"items"\s*:\s*\[$/;

/** Cuts a page of a list into its items as it arrives, so that it is never in memory as a whole.
 * What is left of the page, its frame, is parsed at the end. Items come without managedFields;
 * what is no object is no item. */
export class ListDecoder {
  readonly #title: string;
  readonly #onItem: (item: unknown) => void;
  /** Pieces of the page without its items. */
  readonly #frame: Buffer[] = [];
  readonly #nesting = new JsonNesting();
  #isInItems = false;
  /** Pieces of an item that is not complete, and where it stands. */
  #item: { readonly pieces: Buffer[]; readonly nesting: JsonNesting } | undefined;

  /** @param title  of the call, for errors */
  constructor(title: string, onItem: (item: unknown) => void) {
    this.#title = title;
    this.#onItem = onItem;
  }

  /** Takes the next bytes.
   * @throws KubeError if an item is not JSON, and what `onItem` throws */
  push(chunk: Buffer): void {
    for (let at = 0; at < chunk.length;)
      at = this.#item === undefined ? this.#readFrame(chunk, at) : this.#readItem(chunk, at);
  }

  /** To be called at the end of the page.
   * @throws KubeError if it is not a complete JSON object */
  end(): PageInfo {
    const frame = Buffer.concat(this.#frame).toString('utf8');
    const page = parseJson(frame);
    if (!isFields(page))
      throw undecodableError(this.#title, `the answer is not a list: ${excerpt(frame)}`);
    // The name "items" may be written with escapes; then nothing was cut out.
    if (Array.isArray(page['items'])) page['items'].filter(isFields).forEach(this.#onItem);
    const metadata = isFields(page['metadata']) ? page['metadata'] : {};
    const { resourceVersion = '', continue: next = '' } = metadata;
    return {
      resourceVersion: String(resourceVersion),
      ...(next === '' ? {} : { continueToken: String(next) }),
    };
  }

  /** @returns where an item begins, or the chunk ends */
  #readFrame(chunk: Buffer, from: number): number {
    let at = from;
    while (at < chunk.length && this.#item === undefined) {
      const byte = chunk[at] ?? 0;
      const { depth, isInString } = this.#nesting;
      if (isInString || depth !== 2 || byte !== OPEN_BRACE || !this.#isInItems) {
        this.#nesting.step(byte);
        at += 1;
        // Of what begins within the list itself, only "items" has a list of items.
        if (depth === 1 && this.#nesting.depth === 2)
          this.#isInItems = this.#endsWithItems(chunk.subarray(from, at));
      } else this.#item = { pieces: [], nesting: new JsonNesting() };
    }
    // Copied, so that the frame does not keep whole chunks in memory.
    this.#frame.push(Buffer.from(chunk.subarray(from, at)));
    if (this.#item !== undefined) this.#frame.push(PLACEHOLDER);
    return at;
  }

  /** @returns where the item ends, or the chunk */
  #readItem(chunk: Buffer, from: number): number {
    if (this.#item === undefined) return from;
    const { pieces, nesting } = this.#item;
    const end = nesting.endOf(chunk, from);
    if (end === -1) {
      pieces.push(chunk.subarray(from));
      return chunk.length;
    }
    this.#item = undefined;
    const last = chunk.subarray(from, end);
    const item = parseObject(pieces.length === 0 ? last : Buffer.concat([...pieces, last]));
    if (item === undefined) throw undecodableError(this.#title, 'an item of the list is not JSON');
    this.#onItem(item);
    return end;
  }

  #endsWithItems(last: Buffer): boolean {
    return ITEMS_BEGIN.test(Buffer.concat([...this.#frame, last]).toString('utf8'));
  }
}
