type Unset = undefined | null;

/** The fields of T that are always set, and the others as optional ones. */
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
