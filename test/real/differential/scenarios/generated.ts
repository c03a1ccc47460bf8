import { answerParts } from './generated/answers.ts';
import { claimParts } from './generated/claims.ts';
import { Dice, scenarioOf } from './generated/part.ts';
import { sourceParts } from './generated/sources.ts';
import { editParts, staticParts } from './generated/volumes.ts';
import type { Scenario } from '../../../harness/differential/scenario.ts';

/** Random scenarios: mostly valid ones, the same for the same seed. */
export function generated(seed: number, count: number): readonly Scenario[] {
  return Array.from({ length: count }, (_, index) => {
    const dice = new Dice(seed * 1_000_003 + index);
    const parts = dice.hits(0.2)
      ? staticParts(dice)
      : [...claimParts(dice), ...sourceParts(dice), ...answerParts(dice)];
    return scenarioOf(`gen-${seed}-${index}`, [...parts, ...editParts(dice)]);
  });
}
