import type { Node } from 'yaml';
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
  // A CommonJS package: in the bundle it has no other export.
  const { default: yaml } = await import('yaml');
  const { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument } = yaml;
  const lines = new LineCounter();
  const refuse = (line: number, what: string): never => {
    throw new Refused({ line, what });
  };

  const toNode = (node: Node | null, keyLine: number): YamlNode => {
    const line = node?.range ? lines.linePos(node.range[0]).line : keyLine;
    if (isAlias(node))
      return refuse(
        line,
        'an alias (*name); write the value out, or give it as a flag for all drivers',
      );
    if (node?.tag !== undefined)
      refuse(line, 'a tag (!name); leave it out, values are read like those of flags');
    if (isSeq<Node>(node))
      return { kind: 'list', line, items: node.items.map((item) => toNode(item, line)) };
    if (!isMap<Node, Node>(node))
      return { kind: 'text', line, text: isScalar<string | null>(node) ? (node.value ?? '') : '' };
    const entries = node.items.map(({ key, value }) => {
      const name = toNode(key, line);
      if (name.kind !== 'text') return refuse(name.line, 'a key must be a text');
      return { key: name.text, line: name.line, value: toNode(value, name.line) };
    });
    return { kind: 'mapping', line, entries };
  };

  try {
    const document = parseDocument<Node>(text, {
      lineCounter: lines,
      prettyErrors: false,
      schema: 'failsafe',
      uniqueKeys: false,
    });
    const [error] = document.errors;
    if (error?.code === 'MULTIPLE_DOCS')
      refuse(1, 'several YAML documents; write one, without ---');
    if (error) refuse(lines.linePos(error.pos[0]).line, `not YAML: ${error.message}`);
    return document.contents === null ? undefined : toNode(document.contents, 1);
  } catch (error) {
    return error instanceof Refused
      ? error.fault
      : { line: 1, what: `not YAML: ${messageOf(error)}` };
  }
}

class Refused extends Error {
  readonly fault: Fault;

  constructor(fault: Fault) {
    super(fault.what);
    this.fault = fault;
  }
}
