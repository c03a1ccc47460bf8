/* A reporter for node:test: only the tests that failed, each with its file and its error. */
import { inspect } from 'node:util';

const summaries = new Set(['subtestsFailed', 'cancelledByParent']);

// oxlint-disable-next-line import/no-default-export -- node:test asks for it
export default async function* failures(source) {
  for await (const { type, data } of source) {
    if (type !== 'test:fail' || summaries.has(data.details.error?.failureType)) continue;
    const { error } = data.details;
    yield `\nFAILED ${data.name}\n  ${data.file ?? ''}:${data.line ?? ''}\n${indent(inspect(error?.cause ?? error, { depth: 3, maxStringLength: 2_000 }))}\n`;
  }
}

const indent = (text) => text.replace(/^/gm, '  ');
