/* A reporter for node:test that prints only the failed tests, with file and error. Places in joined
 * tests are those of the sources. */
import { existsSync, readFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import { dirname, resolve } from 'node:path';
import { inspect } from 'node:util';

const summaries = new Set(['subtestsFailed', 'cancelledByParent']);
const maps = new Map();

// oxlint-disable-next-line import/no-default-export -- node:test requires it
export default async function* failures(source) {
  for await (const { type, data } of source) {
    if (type !== 'test:fail' || summaries.has(data.details.error?.failureType)) continue;
    const { error } = data.details;
    const reason = inspect(error?.cause ?? error, { depth: 3, maxStringLength: 2_000 });
    const place = `${data.file ?? ''}:${data.line ?? ''}:${data.column ?? ''}`;
    yield inSources(`\nFAILED ${data.name}\n  ${place}\n${indent(reason)}\n`);
  }
}

const indent = (text) => text.replace(/^/gm, '  ');

function inSources(text) {
  return text.replaceAll(
    /(?:file:\/\/)?(\/[^\s:()]+\.js):(\d+):(\d+)/g,
    (place, path, line, column) => {
      const entry = mapOf(path)?.findEntry(Number(line) - 1, Number(column) - 1);
      if (entry?.originalSource === undefined) return place;
      const file = resolve(dirname(path), entry.originalSource);
      return `${file}:${entry.originalLine + 1}:${entry.originalColumn + 1}`;
    },
  );
}

function mapOf(path) {
  if (!maps.has(path)) {
    const exists = existsSync(`${path}.map`);
    const map = exists ? new SourceMap(JSON.parse(readFileSync(`${path}.map`, 'utf8'))) : undefined;
    maps.set(path, map);
  }
  return maps.get(path);
}
