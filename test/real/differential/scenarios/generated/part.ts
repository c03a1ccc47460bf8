import { setTimeout as delay } from 'node:timers/promises';
import type { Fields } from '../../../../conformance/connection.ts';
import type { Scene } from '../../../../harness/differential/scene.ts';
import { seeded } from '../../../../harness/seeded.ts';
import type { Scenario } from '../../../../harness/differential/scenario.ts';
import type { CallAnswer } from '../../../../harness/differential/scripted-driver.ts';

/** Chooses by a seed. */
export class Dice {
  /** At least 0, less than 1. */
  readonly next: () => number;

  constructor(seed: number) {
    this.next = seeded(seed);
  }

  /** True with the given probability. */
  hits(chance: number): boolean {
    return this.next() < chance;
  }

  /** An element of a list that is not empty. */
  one<T>(list: readonly T[]): T {
    return list[Math.floor(this.next() * list.length)] as T;
  }

  /** An element of the list with that probability. */
  maybe<T>(chance: number, list: readonly T[]): readonly T[] {
    return this.hits(chance) ? [this.one(list)] : [];
  }
}

export type Texts = Readonly<Record<string, string>>;
type Of<T> = T | ((scene: Scene) => T);

/** One deviation of a generated scenario from the plain one. */
export interface Part {
  /** Its text in the title. */
  readonly label: string;
  /** Of the class. */
  readonly parameters?: Of<Texts>;
  readonly cls?: Fields;
  /** Of the claim. */
  readonly spec?: Of<Fields>;
  readonly annotations?: Texts;
  readonly metadata?: Fields;
  readonly prepare?: (scene: Scene) => Promise<unknown>;
  readonly answer?: CallAnswer;
  /** Called between two attempts of a call. */
  readonly between?: (scene: Scene) => Promise<unknown>;
  /** Called once it is known whether there is a volume. */
  readonly edit?: (scene: Scene) => Promise<unknown>;
}

/** One scenario made of several parts; a later part overrides an earlier one. */
export function scenarioOf(name: string, parts: readonly Part[]): Scenario {
  const merged = <T extends object>(scene: Scene, pick: (part: Part) => Of<T> | undefined): T =>
    Object.assign({}, ...parts.map((part) => valueOf(scene, pick(part)))) as T;
  return {
    name,
    title: parts.map(({ label }) => label).join('; ') || 'nothing special',
    class: (scene) => {
      const parameters = merged<Texts>(scene, (part) => part.parameters);
      return {
        ...merged<Fields>(scene, ({ cls }) => cls),
        ...(Object.keys(parameters).length === 0 ? {} : { parameters }),
      };
    },
    claim: (scene) => ({
      ...merged<Fields>(scene, ({ metadata }) => metadata),
      annotations: merged<Texts>(scene, ({ annotations }) => annotations),
      spec: merged<Fields>(scene, ({ spec }) => spec),
    }),
    prepare: async (scene) => {
      for (const { prepare } of parts) await prepare?.(scene);
    },
    ...(parts.some(({ answer }) => answer !== undefined) ? { answer: answerOf(parts) } : {}),
    ends: async (scene) => {
      await waitUntilDecided(scene);
      for (const { between } of parts) await between?.(scene);
      scene.happened.add('go');
      await soon(
        scene,
        () => isBound(scene) || !parts.some(({ between }) => between !== undefined),
      );
    },
    afterwards: async (scene) => {
      for (const { edit } of parts) {
        if (edit === undefined) continue;
        await edit(scene);
        await scene.marker();
        // A refused request may be possible now.
        if (scene.claim() !== undefined) await soon(scene, () => isBound(scene));
      }
      await scene.remove(`${scene.claims}/data`);
      await scene.marker();
      await soon(scene, () => scene.claim() === undefined && scene.volumes().length === 0);
    },
  };
}

function answerOf(parts: readonly Part[]): CallAnswer {
  return async (call, scene) => {
    for (const { answer } of parts) {
      const answered = await answer?.(call, scene);
      if (answered !== undefined) return answered;
    }
    return undefined;
  };
}

function valueOf<T>(scene: Scene, value: Of<T> | undefined): T | undefined {
  return typeof value === 'function' ? (value as (scene: Scene) => T)(scene) : value;
}

const SOON_MS = 6_000;

/** Waits until the condition is met, but no longer than SOON_MS. */
export async function soon(scene: Scene, isMet: () => boolean): Promise<void> {
  const deadlineMs = Date.now() + SOON_MS;
  while (!isMet() && Date.now() < deadlineMs) await scene.stage.observer.next();
}

async function waitUntilDecided(scene: Scene): Promise<void> {
  await scene.marker();
  await soon(
    scene,
    () =>
      (isBound(scene) && scene.hasEvent('ProvisioningSucceeded')) ||
      scene.hasEvent('ProvisioningFailed'),
  );
  await delay(500);
}

function isBound(scene: Scene): boolean {
  return scene.claim()?.status?.phase === 'Bound';
}
