import { isObject, type Json } from './json-value.ts';

/** The value at a simple JSON path (`.spec.source.name`, `.status.items[0]`), as text for a table
 * cell; '' when there is none. Filters and wildcards are not understood and give ''. */
export function cellAt(object: Json, path: string): string {
  const steps = path.match(/[^.[\]]+/g) ?? [];
  let here: Json | undefined = object;
  for (const step of steps) {
    if (Array.isArray(here)) here = here[Number(step)];
    else here = isObject(here) ? here[step] : undefined;
  }
  if (here === undefined || here === null) return '';
  return typeof here === 'object' ? JSON.stringify(here) : String(here);
}
