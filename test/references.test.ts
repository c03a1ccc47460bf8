import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { GROUPS, idsOf } from '../generate/parity-cases.ts';

/* What code, tests and pages cite has to exist: documents, invariants, rules of the protocol,
 * decisions, cases, and files. */

const ROOT = new URL('../..', import.meta.url).pathname;
const FOLDERS = [
  'src',
  'sandbox',
  'test',
  'bench',
  'chaos',
  'generate',
  'scripts',
  'k8s',
  'docs',
  'examples',
];
const PAGES = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'Dockerfile'];
const SELF = 'test/references.test.ts';

const paths = [
  ...PAGES,
  ...FOLDERS.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .map((name) => join(folder, name))
      .filter((path) => /\.(ts|mjs|md|yaml|sh)$/.test(path)),
  ),
].filter((path) => path !== SELF && !path.includes('/generated/'));
const texts = paths.map((path) => ({ path, text: readFileSync(join(ROOT, path), 'utf8') }));

/** Every match of a pattern, as "path: match". */
function matches(
  pattern: RegExp,
): readonly { readonly path: string; readonly found: readonly string[] }[] {
  return texts.flatMap(({ path, text }) =>
    [...text.replace(/\n\s*(?:\*|\/\/|#)? ?/g, ' ').matchAll(pattern)].map((found) => ({
      path,
      found,
    })),
  );
}

function unknown(
  pattern: RegExp,
  isKnown: (found: readonly string[], path: string) => boolean,
): string[] {
  return matches(pattern)
    .filter(({ path, found }) => !isKnown(found, path))
    .map(({ path, found }) => `${path}: ${found[0]}`);
}

/** What a page defines, by the pattern of a definition. */
const defined = (page: string, pattern: RegExp): ReadonlySet<string> =>
  new Set([...readFileSync(join(ROOT, page), 'utf8').matchAll(pattern)].map(([, id = '']) => id));

describe('references', () => {
  it('name no specification or design outside the repository', () => {
    const pattern =
      /\bspec \d\d\b|\bspec\/\d\d|\bshared\/|\bdesign(?: §|,? invariant|,? rule| §?\d)/g;
    assert.deepEqual(
      unknown(pattern, () => false),
      [],
    );
  });

  it('to invariants are to those of docs/invariants.md', () => {
    const known = defined('docs/invariants.md', /^- \*\*Invariant (\d+)\./gm);
    assert.ok(known.size > 0);
    assert.deepEqual(
      unknown(/\binvariant (\d+)/gi, ([, number = '']) => known.has(number)),
      [],
    );
  });

  it('to rules of the protocol are to those of docs/leak-proof.md', () => {
    const known = defined('docs/leak-proof.md', /^- \*\*([JMRD]\d)\.\*\*/gm);
    assert.equal(known.size, 17);
    assert.deepEqual(
      unknown(/(?<![\w-])([JMRD]\d)\b(?!-)/g, ([, rule = '']) => known.has(rule)),
      [],
    );
  });

  it('to rules name them by letter', () => {
    assert.deepEqual(
      unknown(/\brules? \d+\b/gi, () => false),
      [],
    );
  });

  it('to decisions are to those of docs/decisions', () => {
    const known = new Set(
      readdirSync(join(ROOT, 'docs/decisions')).map((name) => Number(name.slice(0, 4))),
    );
    assert.deepEqual(
      unknown(/\bdecision (\d+)/gi, ([, number]) => known.has(Number(number))),
      [],
    );
  });

  it('to numbered cases are to cases that exist', () => {
    const known = new Set(Object.keys(GROUPS).flatMap(idsOf));
    assert.deepEqual(
      unknown(/\(([A-R]-\d\d+)\b/g, ([, id = '']) => known.has(id)),
      [],
    );
  });

  it('to files by their path from the root are to files that exist', () => {
    const pattern =
      /(?<![\w./#-])((?:src|sandbox|test|bench|chaos|generate|scripts|docs|k8s|examples)\/[\w/.-]+\.(?:ts|mjs|md|yaml|sh))\b/g;
    // The tests of the citation checks cite files that don't exist.
    const isKnown = ([, file = '']: readonly string[], path: string): boolean =>
      existsSync(join(ROOT, file)) || path === 'test/parity.test.ts';
    assert.deepEqual(unknown(pattern, isKnown), []);
  });

  it('to files by their folder and name are to files of src, or beside the file that cites them', () => {
    const folders = readdirSync(join(ROOT, 'src'), { withFileTypes: true }).flatMap((entry) =>
      entry.isDirectory() ? [entry.name] : [],
    );
    const pattern = new RegExp(`(?<![\\w./#-])((?:${folders.join('|')})/[\\w/.-]+\\.ts)\\b`, 'g');
    const isKnown = ([, file = '']: readonly string[], path: string): boolean =>
      existsSync(join(ROOT, 'src', file)) || existsSync(join(ROOT, dirname(path), file));
    assert.deepEqual(unknown(pattern, isKnown), []);
  });
});

/** Lines of code with a text or a regular expression, and lines of pages with a link, a command or
 * an arrow of a drawing. */
const UNBREAKABLE = {
  code: /https?:\/\/|['"`]|^\s*\/.*\/[a-z]*,?$|\/[^/ ]+\/[a-z]*[,).;]/,
  comment: /https?:\/\//,
  page: /https?:\/\/|`[^`]{60,}`|--[a-z]|-->|^\s+(?:npm|sutler|docker|kubectl) /,
};

function isUnbreakable(path: string, line: string): boolean {
  if (path.endsWith('.md')) return UNBREAKABLE.page.test(line);
  const isComment = /^\s*(?:\/?\*|\/\/)/.test(line);
  return (isComment ? UNBREAKABLE.comment : UNBREAKABLE.code).test(line);
}

describe('committed text', () => {
  it('is at most 100 columns wide, but for links and what a formatter can’t break', () => {
    const wide = texts
      .filter(({ path }) => /\.(ts|mjs|md)$/.test(path) && path !== 'docs/flags.md')
      .flatMap(({ path, text }) =>
        text.split('\n').flatMap((line, index) => {
          const isBreakable = line.length > 100 && !isUnbreakable(path, line);
          return isBreakable ? [`${path}:${index + 1}`] : [];
        }),
      );
    assert.deepEqual(wide, []);
  });
});
