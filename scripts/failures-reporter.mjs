/* A reporter for node:test that prints only the failed tests, with file and error. */
import { inspect } from 'node:util';

const summaries = new Set(['subtestsFailed', 'cancelledByParent']);

// oxlint-disable-next-line import/no-default-export -- node:test requires it
export default async function* failures(source) {
  for await (const { type, data } of source) {
    if (type !== 'test:fail' || summaries.has(data.details.error?.failureType)) continue;
    const { error } = data.details;
    const reason = inspect(error?.cause ?? error, { depth: 3, maxStringLength: 2_000 });
    const place = `${data.file ?? ''}:${data.line ?? ''}`;
    yield `\nFAILED ${data.name}\n  ${place}\n${indent(reason)}\n`;
  }
}

const indent = (text) => text.replace(/^/gm, '  ');
