import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { countStates, differences, readResults } from './compare.ts';

const spec = (title: string, state: string, type = 'It'): object => ({
  ContainerHierarchyTexts: ['Controller Service', 'CreateVolume'],
  LeafNodeText: title,
  LeafNodeType: type,
  State: state,
});
const report = (...specs: object[]): string => JSON.stringify([{ SpecReports: specs }]);

describe('the comparison of two csi-sanity runs', () => {
  it('names each spec by its full title, and numbers specs with the same title', () => {
    const results = readResults(
      report(spec('a', 'passed'), spec('a', 'failed'), spec('', 'passed', 'BeforeSuite')),
    );
    assert.deepEqual(
      [...results],
      [
        ['Controller Service › CreateVolume › a', 'passed'],
        ['Controller Service › CreateVolume › a (2)', 'failed'],
      ],
    );
    assert.equal(countStates(results), '1 failed, 1 passed');
  });
  it('lists specs that ended differently or are in one run only', () => {
    const direct = readResults(
      report(spec('a', 'passed'), spec('b', 'failed'), spec('c', 'passed')),
    );
    assert.deepEqual(differences(direct, direct), []);
    const through = readResults(report(spec('a', 'failed'), spec('b', 'failed')));
    assert.deepEqual(differences(direct, through), [
      'Controller Service › CreateVolume › a: passed on the driver, failed through the gateway',
      'Controller Service › CreateVolume › c: passed on the driver, absent through the gateway',
    ]);
  });
  it('rejects a report without specs', () => assert.throws(() => readResults('[]'), /no specs/));
});
