import type { Event, EVENT_ID, getScalarValue } from 'js-yaml';
import { messageOf } from '../runtime/error-message.ts';

/** A value of a YAML document, with the line on which it begins. Scalars are texts as they are
 * written: what they mean is decided by the flag that they are for. */
export type YamlNode =
  | { readonly kind: 'text'; readonly line: number; readonly text: string }
  | { readonly kind: 'list'; readonly line: number; readonly items: readonly YamlNode[] }
  | { readonly kind: 'mapping'; readonly line: number; readonly entries: readonly YamlEntry[] };

/** A key of a mapping with its value. Keys may be repeated. */
export interface YamlEntry {
  readonly key: string;
  readonly line: number;
  readonly value: YamlNode;
}

/** What is wrong on a line. */
export interface Fault {
  readonly line: number;
  readonly what: string;
}

/** Reads one YAML document.
 * @returns undefined for an empty one; a fault where it can't be read */
export async function readYaml(text: string): Promise<YamlNode | undefined | Fault> {
  // A process that serves one driver by flags does not need this package.
  const yaml = await import('js-yaml');
  try {
    const parser = { ids: yaml.EVENT_ID, getScalarValue: yaml.getScalarValue };
    return new EventReader(text, yaml.parseEvents(text, {}), parser).readDocument();
  } catch (error) {
    if (error instanceof Refused) return error.fault;
    if (error instanceof yaml.YAMLException)
      return { line: (error.mark?.line ?? 0) + 1, what: `not YAML: ${error.reason}` };
    return { line: 1, what: `not YAML: ${messageOf(error)}` };
  }
}

class Refused extends Error {
  readonly fault: Fault;

  constructor(fault: Fault) {
    super(fault.what);
    this.fault = fault;
  }
}

/** What is used of js-yaml, which is loaded when it is needed. */
interface Parser {
  readonly ids: typeof EVENT_ID;
  readonly getScalarValue: typeof getScalarValue;
}

/** Builds a tree from the events of js-yaml's parser, which say where in the text each value is.
 * js-yaml's own tree does not. */
class EventReader {
  readonly #text: string;
  readonly #events: readonly Event[];
  readonly #parser: Parser;
  #next = 0;
  /** Line of the last value that has a place in the text: an absent value has none. */
  #line = 1;
  #lineStart = 0;

  constructor(text: string, events: readonly Event[], parser: Parser) {
    this.#text = text;
    this.#events = events;
    this.#parser = parser;
  }

  readDocument(): YamlNode | undefined {
    const documents = this.#events.filter(({ type }) => type === this.#parser.ids.DOCUMENT).length;
    if (documents > 1)
      throw new Refused({ line: 1, what: 'several YAML documents; write one, without ---' });
    if (documents === 0) return undefined;
    this.#take();
    return this.#readNode();
  }

  #take(): Event {
    const event = this.#events[this.#next];
    if (event === undefined)
      throw new Refused({ line: this.#line, what: 'not YAML: it ends here' });
    this.#next += 1;
    return event;
  }

  #isAtEnd(): boolean {
    return this.#events[this.#next]?.type === this.#parser.ids.POP;
  }

  #readNode(): YamlNode {
    const { ids } = this.#parser;
    const event = this.#take();
    this.#refuseExtras(event);
    if (event.type === ids.SCALAR) {
      const line = this.#lineAt(event.valueStart);
      return { kind: 'text', line, text: this.#parser.getScalarValue(this.#text, event) };
    }
    if (event.type === ids.SEQUENCE) {
      const line = this.#lineAt(event.start);
      return { kind: 'list', line, items: this.#readItems() };
    }
    if (event.type === ids.MAPPING) {
      const line = this.#lineAt(event.start);
      return { kind: 'mapping', line, entries: this.#readEntries() };
    }
    throw new Refused({ line: this.#line, what: 'a value is missing' });
  }

  #readItems(): readonly YamlNode[] {
    const items: YamlNode[] = [];
    while (!this.#isAtEnd()) items.push(this.#readNode());
    this.#take();
    return items;
  }

  #readEntries(): readonly YamlEntry[] {
    const entries: YamlEntry[] = [];
    while (!this.#isAtEnd()) {
      const key = this.#readNode();
      if (key.kind !== 'text') throw new Refused({ line: key.line, what: 'a key must be a text' });
      entries.push({ key: key.text, line: key.line, value: this.#readNode() });
    }
    this.#take();
    return entries;
  }

  /** Refuses what would make a value depend on more than its text. */
  #refuseExtras(event: Event): void {
    if (event.type === this.#parser.ids.ALIAS)
      throw new Refused({
        line: this.#lineAt(event.anchorStart),
        what: 'an alias (*name); write the value out, or give it as a flag for all drivers',
      });
    if (!('tagStart' in event) || event.tagStart < 0) return;
    throw new Refused({
      line: this.#lineAt(event.tagStart),
      what: 'a tag (!name); leave it out, values are read like those of flags',
    });
  }

  /** The line of a place in the text. Values come in the order of the text. */
  #lineAt(place: number): number {
    for (let end = this.#lineEnd(); end !== -1 && end < place; end = this.#lineEnd()) {
      this.#line += 1;
      this.#lineStart = end + 1;
    }
    return this.#line;
  }

  #lineEnd(): number {
    return this.#text.indexOf('\n', this.#lineStart);
  }
}
