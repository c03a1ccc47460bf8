import type { Scenario } from '../../../harness/differential/scenario.ts';
import { answerParts } from './generated/answers.ts';
import { claimParts } from './generated/claims.ts';
import { Dice } from './generated/dice.ts';
import { editParts } from './generated/edits.ts';
import { scenarioOf } from './generated/part.ts';
import { sourceParts } from './generated/sources.ts';
import { staticParts } from './generated/statics.ts';

/** Random scenarios: mostly valid ones, the same for the same seed. */
export function generated(seed: number, count: number): readonly Scenario[] {
  return Array.from({ length: count }, (_, index) => {
    const dice = new Dice(seed * 1_000_003 + index);
    const name = `gen-${seed}-${index}`;
    if (dice.hits(0.2)) return scenarioOf(name, [...staticParts(dice), ...editParts(dice)]);
    return scenarioOf(name, [
      ...claimParts(dice),
      ...sourceParts(dice),
      ...answerParts(dice),
      ...editParts(dice),
    ]);
  });
}
