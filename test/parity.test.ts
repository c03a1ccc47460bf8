import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import {
  casesInTitles,
  findCases,
  GROUPS,
  idsOf,
  readVerdicts,
  renderCases,
} from '../generate/parity-cases.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const verdicts = readVerdicts(readFileSync(join(ROOT, 'docs/parity.md'), 'utf8'));
const casesOf = findCases(ROOT);

describe('docs/parity-cases.md', () => {
  for (const group of Object.keys(GROUPS)) {
    it(`names a test for each case of group ${group} that is there`, () => {
      const found = new Set([...casesOf.values()].flatMap((ids) => [...ids]));
      const missing = idsOf(group).filter((id) => !found.has(id) && !verdicts.later.has(id));
      assert.deepEqual(missing, []);
    });
  }
});

describe('docs/parity.md', () => {
  it('names only cases that exist', () => {
    const known = new Set(Object.keys(GROUPS).flatMap(idsOf));
    const unknown = [...verdicts.differs, ...verdicts.later].filter((id) => !known.has(id));
    assert.deepEqual(unknown, []);
  });

  it('lists no case both as different and as not there yet', () => {
    assert.deepEqual(
      [...verdicts.differs].filter((id) => verdicts.later.has(id)),
      [],
    );
  });
});

describe('the list of cases', () => {
  it('joins numbers that follow one another', () => {
    const ids = new Set(['A-01', 'A-03', 'A-04', 'A-05']);
    const page = renderCases(new Map([['test/a.test.ts', ids]]), readVerdicts(''));
    assert.match(page, /^- `test\/a\.test\.ts`: A-01, A-03 to A-05$/m);
  });

  it('says what differs, and what is not there yet', () => {
    const page = renderCases(
      new Map(),
      readVerdicts('differs (A-03)\n## Not there yet\n- later (A-02, A-04\n to A-42)'),
    );
    assert.match(page, /^Different on purpose: A-03\.\n\nNot there yet: A-02, A-04 to A-42\.$/m);
  });

  it('takes no number from a comment', () => {
    const source = "  // A-01\n  /** A-02\n   * A-03 */\n  it('covers A-04', run);\n";
    assert.deepEqual(casesInTitles(source), new Set(['A-04']));
  });
});
