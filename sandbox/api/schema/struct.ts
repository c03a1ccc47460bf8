/** Shapes of API objects in a compact notation: `{ Struct: { field: 'type marks' } }`.
 *
 * Types: `string int number bool bytes quantity time micro any`, the name of another struct, `T[]`
 * for a list, `T{}` for a map.
 *
 * Marks of a field:
 * - `!`: required
 * - `*`: a pointer in Go; an empty value is kept
 * - `+`: an absent struct is written as `{}`
 * - `null`: an absent value is written as null
 * - `#n`: field number of the protobuf form; only kinds that typed clients create in that form
 *   have them
 * - `merge`, `merge=key`, `retainKeys`: how a strategic merge patch merges a list
 * - `set`, `map=a,b`: how server-side apply merges a list
 *
 * The member `$` marks the struct itself: `atomic` (server-side apply owns it as one value) or
 * `open` (unknown members are kept). */
export type FieldTable = Readonly<Record<string, Readonly<Record<string, string>>>>;

export type ScalarKind =
  'string' | 'int' | 'number' | 'bool' | 'bytes' | 'quantity' | 'time' | 'micro' | 'any';

export type FieldType =
  | { readonly kind: ScalarKind }
  | { readonly kind: 'struct'; readonly struct: Struct }
  | ListType
  | { readonly kind: 'map'; readonly value: FieldType };

export interface ListType {
  readonly kind: 'list';
  readonly item: FieldType;
  /** Strategic merge: undefined replaces the list, '' merges it as a set of scalars, a name merges
   * items by that member. */
  readonly mergeKey: string | undefined;
  readonly retainKeys: boolean;
  /** Server-side apply: the members that identify an item; undefined owns the list as one value. */
  readonly applyKeys: readonly string[] | undefined;
  readonly isSet: boolean;
}

export interface Field {
  readonly name: string;
  readonly type: FieldType;
  readonly required: boolean;
  readonly keepEmpty: boolean;
  /** What is written where the object has no value. */
  readonly absent: 'nothing' | 'empty' | 'null';
  /** Field number of the protobuf form; 0 where that form is not read. */
  readonly number: number;
}

export interface Struct {
  readonly name: string;
  readonly fields: ReadonlyMap<string, Field>;
  readonly atomic: boolean;
  readonly open: boolean;
}

const SCALARS: ReadonlySet<string> = new Set([
  'string',
  'int',
  'number',
  'bool',
  'bytes',
  'quantity',
  'time',
  'micro',
  'any',
]);

type StructsByName = ReadonlyMap<string, Struct>;

/** Compiles tables to structs; a later table may use structs of an earlier one.
 * @throws Error where a table names a struct that no table describes: a mistake in the table itself
 */
export function compileStructs(...tables: readonly FieldTable[]): StructsByName {
  const structs = new Map<string, Struct>();
  const unfilled: [fields: Map<string, Field>, row: Readonly<Record<string, string>>][] = [];
  for (const [name, row] of tables.flatMap((table) => Object.entries(table))) {
    const { $: marks = '', ...members } = row;
    const fields = new Map<string, Field>();
    structs.set(name, {
      name,
      fields,
      atomic: marks.includes('atomic'),
      open: marks.includes('open'),
    });
    unfilled.push([fields, members]);
  }
  // Only now, because structs may refer to each other.
  for (const [fields, row] of unfilled)
    for (const [name, text] of Object.entries(row))
      fields.set(name, compileField(structs, name, text));
  return structs;
}

function compileField(structs: StructsByName, name: string, text: string): Field {
  const [type = '', ...marks] = text.split(' ');
  const has = (mark: string) => marks.includes(mark);
  const number = Number(marks.find((mark) => mark.startsWith('#'))?.slice(1) ?? 0);
  return {
    name,
    type: compileType(structs, type, marks),
    required: has('!'),
    keepEmpty: has('*') || has('!'),
    absent: has('+') ? 'empty' : has('null') ? 'null' : 'nothing',
    number,
  };
}

function compileType(structs: StructsByName, text: string, marks: readonly string[]): FieldType {
  if (text.endsWith('[]')) {
    const mark = (name: string) =>
      marks.find((each) => each === name || each.startsWith(`${name}=`));
    return {
      kind: 'list',
      item: compileType(structs, text.slice(0, -2), []),
      mergeKey: mark('merge')?.slice('merge='.length),
      retainKeys: marks.includes('retainKeys'),
      applyKeys: mark('map')?.slice('map='.length).split(','),
      isSet: marks.includes('set'),
    };
  }
  if (text.endsWith('{}'))
    return { kind: 'map', value: compileType(structs, text.slice(0, -2), []) };
  if (SCALARS.has(text)) return { kind: text as ScalarKind };
  const struct = structs.get(text);
  if (struct === undefined) throw new Error(`field table: no struct named ${text}`);
  return { kind: 'struct', struct };
}

/** The struct of a type; undefined for other types, and for members that no field describes. */
export function structOf(type: FieldType | undefined): Struct | undefined {
  return type?.kind === 'struct' ? type.struct : undefined;
}
