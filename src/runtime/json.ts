/** The fields of a JSON or YAML object whose shape is not known. */
export type Fields = Readonly<Record<string, unknown>>;

export function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @returns undefined if the text is not JSON */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Quotes the beginning of a text that can't be decoded, except of JSON, which may have secrets. */
export function excerpt(text: string): string {
  return text.trimStart().startsWith('{')
    ? `${text.length} characters of broken JSON`
    : text.slice(0, 200);
}

type Unset = undefined | null;

/** The fields of T that are always set, and its other fields as optional ones. */
type SetFields<T> = {
  [K in keyof T as undefined extends T[K] ? never : K]: T[K];
} & {
  [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], Unset>;
};

/** Leaves out the fields that are undefined, or null, which the API server may send for an unset
 * field. */
export function omitUnset<T extends object>(fields: T): SetFields<T> {
  const set = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(set) as SetFields<T>;
}

/** Parses a JSON list. Returns an empty list for any other text. */
export function listIn(text = ''): readonly unknown[] {
  // '' is common, and an exception costs much more than a parse.
  const list = text === '' ? [] : parseJson(text);
  return Array.isArray(list) ? (list as readonly unknown[]) : [];
}
