import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, it } from 'node:test';

/** A file may import its own folder, or a folder of strictly lower rank. */
const RANK: Readonly<Record<string, number>> = {
  runtime: 0,
  kube: 1,
  csi: 1,
  redis: 1,
  volumes: 2,
  'gateway-client': 2,
  queue: 3,
  election: 3,
  records: 4,
  audit: 5,
  ingest: 6,
  jobs: 6,
  'csi-gateway': 6,
  dashboard: 6,
  all: 6,
  operator: 6,
  'dispatch.ts': 7,
  'processes.ts': 8,
  'cli.ts': 9,
};
const BANNED = /(^|\/)(utils?|helpers?|common|shared|misc|types|constants|manager|index)\.ts$/;
const ROOT = new URL('../../src', import.meta.url).pathname;

const files = readdirSync(ROOT, { recursive: true, encoding: 'utf8' })
  .filter((path) => path.endsWith('.ts') && !path.includes('generated/'))
  .map((path) => ({
    path,
    folder: path.split('/')[0] ?? '',
    text: readFileSync(join(ROOT, path), 'utf8'),
  }));
const imports = files.flatMap(({ path, folder, text }) =>
  [...text.matchAll(/(?:from|import)\s*\(?\s*['"]([^'"]+)['"]/g)].map((match) => {
    const specifier = match[1] ?? '';
    const target = specifier.startsWith('.')
      ? normalize(join(dirname(path), specifier))
      : undefined;
    return {
      path,
      folder,
      specifier,
      target,
      to: target?.split('/')[0] ?? '',
      statement: match[0],
    };
  }),
);

/** Packages that a folder may load at run time; whatever is not listed may not. */
const LOADS: Readonly<Record<string, readonly RegExp[]>> = {
  runtime: [/^pino$/, /^prom-client$/],
  kube: [/^undici$/, /^js-yaml$/, /^prom-client$/, /^@kubernetes\/client-node$/],
  csi: [/^@bufbuild\/protobuf/],
  redis: [/^ioredis$/],
  'gateway-client': [/^@grpc\/grpc-js$/, /^@bufbuild\/protobuf/],
  volumes: [/^@bufbuild\/protobuf/],
  queue: [/^bullmq$/, /^ioredis$/, /^prom-client$/],
  records: [/^ioredis$/],
  election: [/^prom-client$/],
  ingest: [/^express$/, /^prom-client$/],
  jobs: [/^@bufbuild\/protobuf/, /^prom-client$/],
  'csi-gateway': [/^@grpc\/grpc-js$/, /^@bufbuild\/protobuf/, /^prom-client$/],
};

describe('the tree', () => {
  it('has source files to look at', () => assert.ok(files.length > 50, String(files.length)));

  it('has a rank for every folder', () =>
    assert.deepEqual(
      [...new Set(files.map(({ folder }) => folder))].filter((folder) => !(folder in RANK)),
      [],
    ));

  it('imports only within a folder or downwards', () => {
    const wrong = imports.filter(
      ({ target, folder, to }) =>
        target !== undefined && folder !== to && !((RANK[to] ?? 99) < (RANK[folder] ?? -1)),
    );
    assert.deepEqual(
      wrong.map(({ path, target }) => `${path} -> ${target}`),
      [],
    );
  });

  it('has no file whose name says nothing', () =>
    assert.deepEqual(
      files.map(({ path }) => path).filter((path) => BANNED.test(path)),
      [],
    ));

  it('reads process only in main.ts and cli.ts', () => {
    const wrong = files.filter(
      ({ path, text }) =>
        !/(^cli|\/main)\.ts$/.test(path) &&
        /\bprocess\.(env|argv|exit|exitCode|on|once)\b/.test(text),
    );
    assert.deepEqual(
      wrong.map(({ path }) => path),
      [],
    );
  });

  it('keeps volumes/ free of I/O, clock and chance', () => {
    const wrong = files.filter(
      ({ folder, text }) =>
        folder === 'volumes' &&
        /Date\.now|new Date|Math\.random|from 'node:|\bfetch\(|console\./.test(text),
    );
    assert.deepEqual(
      wrong.map(({ path }) => path),
      [],
    );
  });

  it('loads in each folder only the packages that are its own business', () => {
    const wrong = imports.filter(
      ({ folder, specifier, target }) =>
        target === undefined &&
        !specifier.startsWith('node:') &&
        folder in LOADS &&
        !(LOADS[folder] ?? []).some((allowed) => allowed.test(specifier)),
    );
    assert.deepEqual(
      wrong.map(({ path, specifier }) => `${path} -> ${specifier}`),
      [],
    );
  });

  it('has neither TODO nor any nor default exports', () => {
    const wrong = files.filter(({ text }) =>
      /\bTODO\b|\bFIXME\b|: any\b|as any\b|export default/.test(text),
    );
    assert.deepEqual(
      wrong.map(({ path }) => path),
      [],
    );
  });
});
