import type { Fields } from '../../conformance/connection.ts';
import type { CallAnswer } from './scripted-driver.ts';
import type { Scene } from './scene.ts';

/** One story that both provisioners live through, each in namespaces and with classes of its own.
 */
export interface Scenario {
  /** A DNS label, unique in its file; namespaces and classes are named after it. */
  readonly name: string;
  /** What it is about, as the title of the test. */
  readonly title: string;
  /** Fields over those of the plain class. Null: no class is made. */
  readonly class?: Fields | null | ((scene: Scene) => Fields);
  /** Over those of the plain claim. Null: no claim is made. */
  readonly claim?: ClaimShape | null | ((scene: Scene) => ClaimShape);
  /** Makes what must be there before the class and the claim. */
  readonly prepare?: (scene: Scene) => Promise<unknown>;
  /** What the driver says to calls of this scenario, where it is not what it says by itself. */
  readonly answer?: CallAnswer;
  /** Waits for what ends it. */
  readonly ends: (scene: Scene) => Promise<unknown>;
  /** What comes afterwards. Default: a Bound claim is deleted, and its volume is awaited to be
   * gone. */
  readonly afterwards?: (scene: Scene) => Promise<unknown>;
}

export interface ClaimShape {
  readonly annotations?: Readonly<Record<string, string>>;
  readonly finalizers?: readonly string[];
  readonly spec?: Fields;
}

/** The claim is Bound and its event is there. */
export async function bound(scene: Scene): Promise<void> {
  await scene.until('the claim is Bound', () => scene.claim()?.status?.phase === 'Bound');
  await scene.until('the event ProvisioningSucceeded', () =>
    scene.hasEvent('ProvisioningSucceeded'),
  );
}

/** The claim has a warning that it can't be provisioned. */
export async function refused(scene: Scene): Promise<void> {
  await event('ProvisioningFailed')(scene);
}

/** An event with that reason. */
export function event(reason: string, text = ''): (scene: Scene) => Promise<void> {
  return (scene) => scene.until(`the event ${reason} ${text}`, () => scene.hasEvent(reason, text));
}

/** So many calls of that method. */
export function calls(method: string, count: number): (scene: Scene) => Promise<void> {
  return (scene) => scene.until(`${count} × ${method}`, () => scene.calls(method).length >= count);
}

/** Nothing happens: a claim made now is Bound, so the provisioner has seen what came before it. */
export function ignored(scene: Scene): Promise<void> {
  return scene.marker();
}

/** The steps, one after the other. */
export function all(
  ...steps: readonly ((scene: Scene) => Promise<unknown>)[]
): (scene: Scene) => Promise<void> {
  return async (scene) => {
    for (const step of steps) await step(scene);
  };
}

/** For `afterwards`: everything stays as it is. */
export async function stays(): Promise<void> {
  // Nothing to do.
}
