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

/** The beginning of a text that could not be decoded. JSON is left out, since it may contain a
 * secret. */
export function excerpt(text: string): string {
  return text.trimStart().startsWith('{')
    ? `${text.length} characters of broken JSON`
    : text.slice(0, 200);
}
