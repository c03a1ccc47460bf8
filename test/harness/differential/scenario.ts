import type { Fields } from '../../conformance/connection.ts';
import type { CallAnswer } from './scripted-driver.ts';
import type { Scene } from './scene.ts';

/** Steps that both provisioners run through, each in namespaces and with classes of its own. */
export interface Scenario {
  /** A DNS label, unique in its file; namespaces and classes are named after it. */
  readonly name: string;
  /** The title of the test. */
  readonly title: string;
  /** Fields that replace those of the plain class. Null: no class is created. */
  readonly class?: Fields | null | ((scene: Scene) => Fields);
  /** Fields that replace those of the plain claim. Null: no claim is created. */
  readonly claim?: ClaimShape | null | ((scene: Scene) => ClaimShape);
  /** Creates what must exist before the class and the claim. */
  readonly prepare?: (scene: Scene) => Promise<unknown>;
  /** Replaces the driver's default answers to calls of this scenario. */
  readonly answer?: CallAnswer;
  /** Waits until the scenario has reached its result. */
  readonly ends: (scene: Scene) => Promise<unknown>;
  /** Steps after the result. Default: deletes a Bound claim, and waits until its volume is gone. */
  readonly afterwards?: (scene: Scene) => Promise<unknown>;
}

export interface ClaimShape {
  readonly annotations?: Readonly<Record<string, string>>;
  readonly finalizers?: readonly string[];
  readonly spec?: Fields;
}

/** @param more  by default it ends when the claim is Bound */
export function scenario(
  name: string,
  title: string,
  more: Partial<Omit<Scenario, 'name' | 'title'>> = {},
): Scenario {
  return { ends: bound, ...more, name, title };
}

/** Waits until the claim is Bound and has its event. */
export async function bound(scene: Scene): Promise<void> {
  await scene.untilBound();
  await scene.until('the event ProvisioningSucceeded', () =>
    scene.hasEvent('ProvisioningSucceeded'),
  );
}

/** Waits for the warning that the claim can't be provisioned. */
export async function refused(scene: Scene): Promise<void> {
  await event('ProvisioningFailed')(scene);
}

/** Waits for an event with that reason. */
export function event(reason: string, text = ''): (scene: Scene) => Promise<void> {
  return (scene) => scene.until(`the event ${reason} ${text}`, () => scene.hasEvent(reason, text));
}

/** Waits for that many calls of that method. */
export function calls(method: string, count: number): (scene: Scene) => Promise<void> {
  return (scene) => scene.until(`${count} × ${method}`, () => scene.calls(method).length >= count);
}

/** Waits until a claim that is created now is Bound: then the provisioner has seen, and ignored,
 * what was created before. */
export function ignored(scene: Scene): Promise<void> {
  return scene.marker();
}

/** Runs the steps one after the other. */
export function all(
  ...steps: readonly ((scene: Scene) => Promise<unknown>)[]
): (scene: Scene) => Promise<void> {
  return async (scene) => {
    for (const step of steps) await step(scene);
  };
}

/** Waits until a volume of the scenario is Released. */
export function released(scene: Scene): Promise<void> {
  return scene.until('the volume is Released', () =>
    scene.volumes().some((volume) => volume.status?.phase === 'Released'),
  );
}

/** For `afterwards`: deletes nothing. */
export async function stays(): Promise<void> {}
