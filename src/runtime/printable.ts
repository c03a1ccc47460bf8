/** Control characters (C0, DEL, C1), invisible characters that change how a line is shown (the
 * bidirectional ones among them), and the line separators of Unicode. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Writes control and invisible characters as JSON's escapes, so that the text stays on one line
 * and a terminal shows all of it. */
export function escapeControls(text: string): string {
  return text.replaceAll(UNPRINTABLE, (character) =>
    character
      .split('')
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join(''),
  );
}

/** Cuts a long text, and adds the length of the whole. */
export function shorten(text: string, maxCharacters: number): string {
  const { length } = text;
  return length <= maxCharacters ? text : `${text.slice(0, maxCharacters)}… (${length} characters)`;
}

/** Formats a number with its noun: "1 claim", "2 claims". */
export function counted(count: number, noun: string, plural = `${noun}s`): string {
  return `${count} ${count === 1 ? noun : plural}`;
}

/** Formats a time, to the second. */
export function isoTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}

/** Formats a time span: 5s, 12m, 3h, 2d. */
export function age(ms: number): string {
  const units = [
    [86_400_000, 'd'],
    [3_600_000, 'h'],
    [60_000, 'm'],
  ] as const;
  const [length, unit] = units.find(([each]) => ms >= 2 * each) ?? [1_000, 's'];
  return `${Math.max(0, Math.round(ms / length))}${unit}`;
}
