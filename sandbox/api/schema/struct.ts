/**
 * Shapes of API objects, written down compactly: `{ Struct: { field: 'type marks' } }`.
 *
 * type:  string int number bool bytes quantity time micro any · a struct's name · `T[]` list ·
 *        `T{}` map
 * marks: `!` required · `*` pointer (an empty value is kept) · `+` an absent struct is written as
 * `{}` · `null` an absent value as null
 * `#n` number in the protobuf form, which only kinds that typed clients create that way need
 * `merge` / `merge=key` strategic merge of lists · `retainKeys` · `set` / `map=a,b` server-side
 * apply of lists The member `$` marks the struct itself: `atomic` (apply owns it as one) or `open`
 * (unknown members are kept).
 * */
export type FieldTable = Readonly<Record<string, Readonly<Record<string, string>>>>;

export type ScalarKind =
  'string' | 'int' | 'number' | 'bool' | 'bytes' | 'quantity' | 'time' | 'micro' | 'any';

export type FieldType =
  | { readonly kind: ScalarKind }
  | { readonly kind: 'struct'; readonly struct: Struct }
  | {
      readonly kind: 'list';
      readonly item: FieldType;
      /** Strategic merge: undefined replaces the list, '' merges it as a set of scalars, a name
       * merges items by that member. */
      readonly mergeKey: string | undefined;
      readonly retainKeys: boolean;
      /** Server-side apply: undefined owns the list as one. */
      readonly applyKeys: readonly string[] | undefined;
      readonly isSet: boolean;
    }
  | { readonly kind: 'map'; readonly value: FieldType };

export interface Field {
  readonly name: string;
  readonly type: FieldType;
  readonly required: boolean;
  readonly keepEmpty: boolean;
  /** What is written where the object has nothing. */
  readonly absent: 'nothing' | 'empty' | 'null';
  /** Field number of the protobuf form; 0 where we don't read it. */
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

/** Compiles tables to structs; a later table may use structs of an earlier one.
 * @throws Error where a table names a struct that no table describes: a mistake in the table itself
 */
export function compileStructs(...tables: readonly FieldTable[]): ReadonlyMap<string, Struct> {
  const rows = new Map(tables.flatMap((table) => Object.entries(table)));
  const structs = new Map<string, Struct & { readonly fields: Map<string, Field> }>();
  for (const [name, row] of rows) {
    const marks = row['$'] ?? '';
    structs.set(name, {
      name,
      fields: new Map(),
      atomic: marks.includes('atomic'),
      open: marks.includes('open'),
    });
  }
  const typeOf = (text: string, marks: readonly string[]): FieldType => {
    if (text.endsWith('[]')) {
      const mark = (name: string) =>
        marks.find((each) => each === name || each.startsWith(`${name}=`));
      const merge = mark('merge');
      const map = mark('map');
      return {
        kind: 'list',
        item: typeOf(text.slice(0, -2), []),
        mergeKey: merge?.slice('merge='.length),
        retainKeys: marks.includes('retainKeys'),
        applyKeys: map?.slice('map='.length).split(','),
        isSet: marks.includes('set'),
      };
    }
    if (text.endsWith('{}')) return { kind: 'map', value: typeOf(text.slice(0, -2), []) };
    if (SCALARS.has(text)) return { kind: text as ScalarKind };
    const struct = structs.get(text);
    if (struct === undefined) throw new Error(`field table: no struct named ${text}`);
    return { kind: 'struct', struct };
  };
  for (const [name, row] of rows) {
    const fields = structs.get(name)?.fields;
    for (const [field, text] of Object.entries(row)) {
      if (field === '$') continue;
      const [type = '', ...marks] = text.split(' ');
      const has = (mark: string) => marks.includes(mark);
      const absent = has('+') ? 'empty' : has('null') ? 'null' : 'nothing';
      const number = Number(marks.find((mark) => mark.startsWith('#'))?.slice(1) ?? 0);
      fields?.set(field, {
        name: field,
        type: typeOf(type, marks),
        required: has('!'),
        keepEmpty: has('*') || has('!'),
        absent,
        number,
      });
    }
  }
  return structs;
}
