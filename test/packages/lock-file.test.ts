import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { directDependencies, lockedPackages, neededBy } from './lock-file.ts';

/** Licences whose terms allow to ship the package within a work under Apache-2.0. */
const COMPATIBLE = new Set([
  '0BSD',
  'Apache-2.0',
  '(Apache-2.0 AND BSD-3-Clause)',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'ISC',
  'MIT',
  'PSF-2.0',
  'Unlicense',
]);
const packages = [...lockedPackages];
const foldersOf = (entries: typeof packages): readonly string[] =>
  entries.map(([folder]) => folder);

describe('package-lock.json', () => {
  it('has the checksum of every package', () => {
    assert.ok(packages.length > 300, String(packages.length));
    const unchecked = packages.filter(
      ([, { integrity }]) => !/^sha512-[\w+/]{86}==$/.test(integrity ?? ''),
    );
    assert.deepEqual(foldersOf(unchecked), []);
  });

  it('names no address, so that npm asks the registry that its user has chosen', () => {
    const elsewhere = packages.filter(([, { resolved }]) => resolved !== undefined);
    assert.deepEqual(foldersOf(elsewhere), []);
  });

  it('gives production nothing that its dependencies do not need', () => {
    const needed = neededBy(directDependencies);
    const surplus = packages.filter(([folder, { dev }]) => dev !== true && !needed.has(folder));
    assert.deepEqual(foldersOf(surplus), []);
  });

  it('has only licences for production that fit into a work under Apache-2.0', () => {
    const others = packages.filter(
      ([, { dev, license }]) => dev !== true && !COMPATIBLE.has(license ?? ''),
    );
    assert.deepEqual(
      others.map(([folder, { license }]) => `${folder}: ${license}`),
      [],
    );
  });
});
