import { isoTime } from '../runtime/printable.ts';

/** HTML that may be sent as it is. */
export class Markup {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** What a template of `markup` may contain; a text is escaped, undefined is nothing. */
export type Content = Markup | string | number | undefined | readonly Content[];

/** Template tag for HTML. Whatever is put in is text, unless it is Markup itself. */
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

/** Names, and what is said of each. */
export function definitions(facts: Readonly<Record<string, Content>>): Markup {
  const rows = Object.entries(facts).map(
    ([name, text]) => markup`<dt>${name}</dt><dd>${text}</dd>`,
  );
  return markup`<dl>${rows}</dl>`;
}

/** A time, as a text that may be shorter. */
export function time(ms: number, text = isoTime(ms)): Markup {
  const iso = isoTime(ms);
  return markup`<time datetime="${iso}" title="${iso}">${text}</time>`;
}
