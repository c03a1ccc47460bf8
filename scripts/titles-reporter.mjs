/* A reporter for node:test that prints one JSON array per test: file, suites, title. */

// oxlint-disable-next-line import/no-default-export -- node:test requires it
export default async function* titles(source) {
  const names = [];
  for await (const { type, data } of source) {
    if (type === 'test:start') names[data.nesting] = data.name;
    if (type === 'test:pass' && data.details.type !== 'suite') {
      yield `${JSON.stringify([data.file, names.slice(0, data.nesting), data.name])}\n`;
    }
  }
}
