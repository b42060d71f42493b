"""Disguises by other names: links, mounts and copies that a line makes, empty words, disks by the way."""

from __future__ import annotations

DENIED = [
    "r$@m -rf /",
    "ln -s / root; cd root; rm -rf *",
    "ln -sT ~ x && rm -rf x/.",
    "ln -s / x && find -L x -delete",
    "ln -s / /tmp/x; rm -rf /tmp/x/*",
    "mkdir t; ln -s / t/x; rm -rf t/x/*",
    "ln -s /etc; rm -rf etc/*",
    "ln -s ../.. up; rm -rf up/*",
    "ln -s /dev/sda x; dd if=/dev/zero of=x",
    "ln -s /dev/sda x; cat y > x",
    "ln -s /etc/passwd x; echo y > x",
    "mount --rbind / m; rm -rf m",
    "mount -o bind $HOME m; rm -rf m/*",
    "rm -rf /proc/1/root/",
    "rm -rf /proc/1/cwd/",
    "rm -rf /proc/$$/root/*",
    "cp /bin/rm ./x; ./x -rf /",
    "cp $(which rm) ./x && ./x -rf ~",
    "ln -s /bin/rm x; ./x -rf /",
    "7z a -sdel x.7z ~",
    "rclone purge /",
    "gio trash ~",
    "gio remove -f ~/",
    "cmake -E remove_directory /",
    "zpool create tank /dev/sda",
    "cryptsetup luksRemoveKey /dev/sda2",
]

ASKED = [
    "qemu-img convert x -O raw /dev/sda",
    "openssl rand -out /dev/sda 1000000",
    "sg_write_same --lba=0 /dev/sda",
    "flash_erase /dev/mtd0 0 0",
    "vgreduce --removemissing --force vg0 /dev/sda",
    "some-tool --to=/dev/sda",
    "pkill -KILL -v x",
    "ipython -c 'import x'",
]

HARMLESS = [
    "echo $1",
    'clean() { rm -rf "$1"/*; }; clean build',
    "sh -c 'rm -rf \"$1\"/*' _ build",
    'set -- build; rm -rf "$1"/*',
    "ln -s / r && rm -rf r",
    "ln -sf ../shared/config config && echo x > config",
    "cd build && ln -s ../src src && rm -rf src/x",
    "ln a b; rm -rf b",
    "cp bin/rm x; ./x build",
    "echo 'all: ; rm -rf build' > Makefile && make",
    "echo 'rm -rf /' | tee notes; make",
    "rg --files -g '*.orig' | xargs rm",
    "7z a x.7z ~",
    "gio info ~",
    "cmake -E remove_directory build",
    "smartctl -a /dev/sda",
    "udevadm info /dev/sda",
    "zpool list",
]
