import { isoTime } from '../runtime/printable.ts';

/** HTML that needs no escaping. */
export class Markup {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** A value in a template of `markup`. A text is escaped; undefined adds nothing. */
export type Content = Markup | string | number | undefined | readonly Content[];

/** Template tag for HTML. Escapes every value that is not Markup. */
export function markup(strings: TemplateStringsArray, ...contents: readonly Content[]): Markup {
  return new Markup(String.raw({ raw: strings }, ...contents.map(textOf)));
}

function textOf(content: Content): string {
  if (content === undefined) return '';
  if (content instanceof Markup) return content.text;
  if (typeof content === 'object') return content.map(textOf).join('');
  return String(content)
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');
}

/** Makes a list of names and their values. */
export function definitions(facts: Readonly<Record<string, Content>>): Markup {
  const rows = Object.entries(facts).map(
    ([name, text]) => markup`<dt>${name}</dt><dd>${text}</dd>`,
  );
  return markup`<dl>${rows}</dl>`;
}

/** Makes a time. `text` may be a shorter form. */
export function time(ms: number, text = isoTime(ms)): Markup {
  const iso = isoTime(ms);
  return markup`<time datetime="${iso}" title="${iso}">${text}</time>`;
}
