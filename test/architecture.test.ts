import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { files, imports, RANK } from '../generate/source-tree.ts';

const BANNED = /(^|\/)(utils?|helpers?|common|shared|misc|types|constants|manager|index)\.ts$/;

/** Packages that any folder may load at run time. */
const EVERYWHERE = [/^quick-lru$/];
/** Packages that each folder may load besides. */
const LOADS: Readonly<Record<string, readonly RegExp[]>> = {
  runtime: [/^pino$/, /^prom-client$/],
  kube: [/^undici$/, /^yaml$/, /^prom-client$/, /^@kubernetes\/client-node$/],
  csi: [/^@bufbuild\/protobuf/],
  driver: [/^@bufbuild\/protobuf/],
  redis: [/^ioredis$/],
  'gateway-client': [/^@bufbuild\/protobuf/],
  volumes: [/^@bufbuild\/protobuf/],
  topology: [/^prom-client$/],
  queue: [/^bullmq$/, /^ioredis$/, /^prom-client$/],
  election: [/^prom-client$/],
  audit: [/^ioredis$/],
  explain: [/^ioredis$/],
  capacity: [/^ioredis$/, /^@bufbuild\/protobuf/],
  'driver-config': [/^yaml$/],
  connections: [],
  ingest: [/^ioredis$/, /^prom-client$/],
  webhooks: [/^express$/],
  jobs: [/^@bufbuild\/protobuf/, /^prom-client$/],
  'csi-gateway': [/^@bufbuild\/protobuf/, /^@grpc\/grpc-js$/, /^prom-client$/],
  dashboard: [
    /^@bull-board\//,
    /^bullmq$/,
    /^express(-rate-limit|-session)?$/,
    /^helmet$/,
    /^prom-client$/,
  ],
  operator: [/^ioredis$/, /^yaml$/],
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

  it('has no file named utils, helpers, common or the like', () =>
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

  it('keeps rules, migration, topology and volumes free of clock, random numbers and system calls', () => {
    const wrong = files.filter(
      ({ folder, text }) =>
        ['rules', 'migration', 'topology', 'volumes'].includes(folder) &&
        /Date\.now|new Date|Math\.random|from 'node:(?!crypto)|\bfetch\(|console\./.test(text),
    );
    assert.deepEqual(
      wrong.map(({ path }) => path),
      [],
    );
  });

  it('loads in each folder only the packages that are listed for it', () => {
    const wrong = imports.filter(
      ({ folder, specifier, target }) =>
        target === undefined &&
        !specifier.startsWith('node:') &&
        ![...EVERYWHERE, ...(LOADS[folder] ?? [])].some((allowed) => allowed.test(specifier)),
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
